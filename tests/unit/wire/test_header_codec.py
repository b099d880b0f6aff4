from enum import Enum
from typing import Any, get_args

import msgspec
import pytest

from firearrow.model.topic import TopicFilterType
from firearrow.wire.codes import TIER_P0, TIER_P1, RequestCode
from firearrow.wire.header import Header, HeaderError
from firearrow.wire.headers import (
    HEADERLESS,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    BoundaryType,
    BrokerHeartbeatRequest,
    CheckTransactionStateRequest,
    CreateTopicRequest,
    GetBrokerConsumeStatsRequest,
    GetMaxOffsetRequest,
    GetRouteInfoRequest,
    HeartbeatReply,
    PopMessageRequest,
    PullMessageRequest,
    QueryMessageReply,
    QueryMessageRequest,
    RegisterBrokerRequest,
    ResetOffsetRequest,
    SearchOffsetRequest,
    SendMessageFailedReply,
    SendMessageReply,
    SendMessageRequest,
    SendMessageRequestV2,
    UnregisterClientRequest,
    UpdateConsumerOffsetRequest,
)

SEND = {
    "producerGroup": "PG",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "-1",
    "sysFlag": "8",
    "bornTimestamp": "1700000000000",
    "flag": "3",
    "properties": "TAGS\x01paid\x02",
    "reconsumeTimes": "2",
    "unitMode": "true",
    "maxReconsumeTimes": "16",
    "batch": "true",
    "bname": "broker-a",
}
ALL_HEADERS: list[type[Header]] = list(
    dict.fromkeys(
        [*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values(), SendMessageFailedReply],
    )
)


def wire_names(header: type[Header]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(header)]


def example_of(header: type[Header], *, full: bool) -> Header:
    """An instance with a telling value in every field, or in the required ones only."""
    values: dict[str, object] = {}
    for index, field in enumerate(msgspec.structs.fields(header)):
        if full or field.required:
            values[field.name] = example_value(field.type, index)
    return header(**values)


def example_value(kind: Any, index: int) -> object:
    text = str(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)[-1]
    if kind is bool or bool in get_args(kind):
        return True
    if "int" in text:
        return -(1 << 31) + index
    return f"text {index}"


def test_every_ordinary_and_administrative_code_has_a_header_or_none_by_intent() -> None:
    tiers = TIER_P0 | TIER_P1
    assert tiers == (REQUEST_HEADERS.keys() & tiers) | HEADERLESS
    assert not REQUEST_HEADERS.keys() & HEADERLESS


@pytest.mark.parametrize(
    "code", [217, 370, 901, 904, 905, 200050, 200051, 200052, 200053, 200054, 200055]
)
def test_further_codes_that_we_serve_have_headers(code: int) -> None:
    assert RequestCode(code) in REQUEST_HEADERS


@pytest.mark.parametrize("header", ALL_HEADERS)
@pytest.mark.parametrize("full", [True, False])
def test_header_survives_the_wire(header: type[Header], full: bool) -> None:
    example = example_of(header, full=full)
    ext = example.to_ext()
    assert all(isinstance(value, str) for value in ext.values())
    assert header.from_ext(ext) == example


@pytest.mark.parametrize("header", ALL_HEADERS)
def test_wire_names_are_unique_and_have_no_underscore_unless_java_has_one(
    header: type[Header],
) -> None:
    names = wire_names(header)
    assert len(set(names)) == len(names)
    with_underscore = {name for name in names if "_" in name}
    assert with_underscore <= {
        "MSG_REGION",
        "TRACE_ON",
        "IS_SUPPORT_HEART_BEAT_V2",
        "IS_SUB_CHANGE",
        "_UNIQUE_KEY_QUERY",
        "__ZONE_NAME",
        "__ZONE_MODE",
    }


@pytest.mark.parametrize(
    ("header", "attribute", "wire_name"),
    [
        (RegisterBrokerRequest, "body_crc32", "bodyCrc32"),
        (RegisterBrokerRequest, "heartbeat_timeout_millis", "heartbeatTimeoutMillis"),
        (BrokerHeartbeatRequest, "heartbeat_timeout_mills", "heartbeatTimeoutMills"),
        (GetRouteInfoRequest, "accept_standard_json_only", "acceptStandardJsonOnly"),
        (UnregisterClientRequest, "client_id", "clientID"),
        (ResetOffsetRequest, "is_force", "isForce"),
        (GetBrokerConsumeStatsRequest, "is_order", "isOrder"),
        (SendMessageReply, "msg_region", "MSG_REGION"),
        (SendMessageReply, "trace_on", "TRACE_ON"),
        (HeartbeatReply, "is_support_heart_beat_v2", "IS_SUPPORT_HEART_BEAT_V2"),
        (QueryMessageRequest, "unique_key_query", "_UNIQUE_KEY_QUERY"),
        (QueryMessageReply, "index_last_update_phyoffset", "indexLastUpdatePhyoffset"),
        (PullMessageRequest, "proxy_froward_client_id", "proxyFrowardClientId"),
        (CheckTransactionStateRequest, "broker_name", "bname"),
        (SendMessageRequest, "broker_name", "bname"),
    ],
)
def test_odd_wire_names_are_as_java_spells_them(
    header: type[Header], attribute: str, wire_name: str
) -> None:
    names = {field.name: field.encode_name for field in msgspec.structs.fields(header)}
    assert names[attribute] == wire_name


def test_send_v2_has_the_letters_a_to_n_in_the_order_of_the_long_names() -> None:
    assert wire_names(SendMessageRequestV2) == list("abcdefghijklmn")


def test_both_forms_of_a_send_look_the_same_to_a_handler() -> None:
    letters = dict(zip("abcdefghijklmn", SEND.values(), strict=True))
    long = SendMessageRequest.from_ext(SEND)
    short = SendMessageRequestV2.from_ext(letters)
    assert isinstance(short, SendMessageRequest)
    assert msgspec.structs.asdict(short) == msgspec.structs.asdict(long)
    assert (long.queue_id, long.unit_mode, long.batch) == (-1, True, True)
    assert short.to_ext() == letters
    assert long.to_ext() == SEND


def test_send_without_optional_fields_has_javas_defaults() -> None:
    required = dict(list(SEND.items())[:8])
    send = SendMessageRequest.from_ext(required)
    assert send.properties is None
    assert send.max_reconsume_times is None
    assert (send.reconsume_times, send.unit_mode, send.batch) == (0, False, False)


@pytest.mark.parametrize("missing", list(SEND)[:8])
def test_missing_required_field_is_named(missing: str) -> None:
    ext = {name: value for name, value in SEND.items() if name != missing}
    with pytest.raises(HeaderError, match=f"SendMessageRequest.*'{missing}' is missing"):
        SendMessageRequest.from_ext(ext)


@pytest.mark.parametrize("text", ["", "1.0", " 1", "1 ", "0x1", "2147483648", "x", "\u0661"])
def test_required_number_that_does_not_parse_is_refused_by_name(text: str) -> None:
    with pytest.raises(HeaderError, match="'queueId'"):
        SendMessageRequest.from_ext(SEND | {"queueId": text})


def test_optional_number_that_does_not_parse_keeps_its_default() -> None:
    send = SendMessageRequest.from_ext(SEND | {"reconsumeTimes": "many"})
    assert send.reconsume_times == 0


def test_64_bit_offset_fits_where_a_queue_id_does_not() -> None:
    ext = {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": str(1 << 40)}
    assert UpdateConsumerOffsetRequest.from_ext(ext).commit_offset == 1 << 40
    with pytest.raises(HeaderError, match="32 bits"):
        UpdateConsumerOffsetRequest.from_ext(ext | {"queueId": str(1 << 40)})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("1", False)])
def test_only_the_word_true_is_true(text: str, value: bool) -> None:
    ext = {"topic": "t", "queueId": "0", "committed": text}
    assert GetMaxOffsetRequest.from_ext(ext).committed is value


def test_max_offset_asks_for_the_committed_one_unless_told_otherwise() -> None:
    assert GetMaxOffsetRequest.from_ext({"topic": "t", "queueId": "0"}).committed


@pytest.mark.parametrize(
    ("text", "boundary"),
    [("upper", BoundaryType.UPPER), ("UPPER", BoundaryType.UPPER), ("odd", BoundaryType.LOWER)],
)
def test_boundary_is_read_in_any_case_and_lower_when_unknown(
    text: str, boundary: BoundaryType
) -> None:
    ext = {"topic": "t", "queueId": "0", "timestamp": "5", "boundaryType": text}
    assert SearchOffsetRequest.from_ext(ext).boundary_type is boundary


def test_topic_with_an_unknown_filter_type_is_refused() -> None:
    ext = {
        "topic": "t",
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "MULTI_TAG",
    }
    request = CreateTopicRequest.from_ext(ext)
    assert request.topic_filter_type is TopicFilterType.MULTI_TAG
    assert (request.order, request.force) == (False, False)
    with pytest.raises(HeaderError, match=r"'topicFilterType'.*SINGLE_TAG"):
        CreateTopicRequest.from_ext(ext | {"topicFilterType": "NO_TAG"})


def test_reset_from_a_4x_tool_means_all_queues_and_goes_by_time() -> None:
    reset = ResetOffsetRequest.from_ext(
        {"group": "g", "topic": "t", "timestamp": "-1", "isForce": "true"}
    )
    assert (reset.queue_id, reset.offset, reset.is_force) == (-1, -1, True)


def test_pop_without_a_birth_time_means_now() -> None:
    ext = {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "60000",
        "pollTime": "0",
        "initMode": "0",
    }
    assert PopMessageRequest.from_ext(ext).born_time == 0


def test_unknown_fields_are_ignored_and_absent_ones_stay_absent() -> None:
    ext = {"clientID": "c", "ReqT": "0", "Signature": "s", "consumerGroup": "g"}
    request = UnregisterClientRequest.from_ext(ext)
    assert request.to_ext() == {"clientID": "c", "consumerGroup": "g"}
