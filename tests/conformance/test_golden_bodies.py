"""Typed headers and bodies against frames that real RocketMQ peers sent.

The frames are described in `data/README.md`.
"""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from firearrow.hot import Command, crc31, decode_frames
from firearrow.wire import java_json
from firearrow.wire.bodies import (
    REQUEST_BODIES,
    RESPONSE_BODIES,
    ConsumerRunningInfo,
    HeartbeatData,
    decode_batch_ack,
    decode_register_body,
    decode_reset_offset,
    decode_timer_checkpoint,
    encode_register_body,
    encode_reset_offset,
    encode_timer_checkpoint,
)
from firearrow.wire.codes import OURS, RequestCode
from firearrow.wire.header import Header, HeaderError
from firearrow.wire.headers import (
    HEADERLESS,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    RegisterBrokerRequest,
    SendMessageFailedReply,
    SendMessageReply,
)
from firearrow.wire.properties_text import format_properties, parse_properties

DATA: Final = Path(__file__).parent / "data" / "frames.jsonl.gz"
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
POP_SQUEEZED: Final = range(3442, 3544)  # POP codes without their upper bits
POP_LOST_BITS: Final = 0x30000
KNOWN_CODES: Final = {int(code) for code in RequestCode}

# Sends with nothing but a topic: Java answers them with an exception, we name the field.
BROKEN_SENDS: Final = {508, 608, 1158}
# Fields that any request may carry and that handlers do not read from the typed header.
COMMON_FIELDS: Final = {"bname", "ns", "nsd", "ReqT", "AccessKey", "Signature", "OnsChannel"}
# mqadmin 4.9 says removeOffset where 5.x says cleanOffset, and 5.x brokers ignore it.
IGNORED_FIELDS: Final = {(RequestCode.DELETE_SUBSCRIPTIONGROUP, "removeOffset")}
# Senders whose bodies fastjson wrote from the very classes that our structs mirror. The others
# leave members out (4.9.8, Go, Node) or were typed by hand (java-remoting).
APACHE_5: Final = {
    "java-client-5.3.3",
    "mqadmin-5.3.3",
    "broker-5.3.3",
    "slave-broker-5.3.3",
    "broker",
    "nameserver",
}


class Frame(NamedTuple):
    id: int
    sender: str
    request_code: RequestCode
    is_response: bool
    command: Command


def load_frames() -> list[Frame]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        entries = {entry["id"]: entry for entry in map(json.loads, lines)}
    frames: list[Frame] = []
    for entry in entries.values():
        (command,), _, wrong = decode_frames(
            bytes.fromhex(entry["hex"]), FRAME_BYTES_MAX, FRAME_BYTES_MAX
        )
        assert not wrong
        asked = entry["response_of"]
        code = entry["code"] if asked is None else entries[asked]["code"]
        if code in POP_SQUEEZED:
            code += POP_LOST_BITS
        if code in KNOWN_CODES:
            frames.append(
                Frame(entry["id"], entry["from"], RequestCode(code), asked is not None, command)
            )
    return frames


FRAMES: Final = load_frames()


def by_code(frames: list[Frame]) -> list[Any]:
    """One parameter per request code, with all frames of that code."""
    groups: defaultdict[RequestCode, list[Frame]] = defaultdict(list)
    for frame in frames:
        groups[frame.request_code].append(frame)
    return [pytest.param(group, id=code.name) for code, group in sorted(groups.items())]


def header_of(frame: Frame) -> type[Header] | None:
    """The header class that this frame's fields belong to, if any."""
    if not frame.is_response:
        return REQUEST_HEADERS.get(frame.request_code)
    kind = RESPONSE_HEADERS.get(frame.request_code)
    if kind is SendMessageReply and "msgId" not in frame.command.ext:
        return SendMessageFailedReply
    return kind if frame.command.ext else None


def body_of(frame: Frame) -> Any:
    """The body type of this frame, if it has a JSON body."""
    if not frame.command.body or (frame.is_response and frame.command.code != 0):
        return None
    table = RESPONSE_BODIES if frame.is_response else REQUEST_BODIES
    return table.get(frame.request_code)


WITH_HEADER: Final = [
    frame for frame in FRAMES if header_of(frame) is not None and frame.id not in BROKEN_SENDS
]
WITH_BODY: Final = [frame for frame in FRAMES if body_of(frame) is not None]


# The recorded cluster had neither a controller nor a slave that could act as a master.
UNRECORDED: Final = {
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
    RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_REGISTER_BROKER,
    RequestCode.CONTROLLER_GET_REPLICA_INFO,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    RequestCode.CLEAN_BROKER_DATA,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    RequestCode.CONTROLLER_APPLY_BROKER_ID,
}


def test_recording_covers_most_typed_headers_and_bodies() -> None:
    """So that the tests below cannot pass by looking at nothing."""
    assert len(WITH_HEADER) > 1_100
    assert len(WITH_BODY) > 270
    requests = {frame.request_code for frame in WITH_HEADER if not frame.is_response}
    assert set(REQUEST_HEADERS) - OURS - requests == UNRECORDED
    bodies = {frame.request_code for frame in WITH_BODY}
    assert (set(REQUEST_BODIES) | set(RESPONSE_BODIES)) - OURS == bodies


@pytest.mark.parametrize("frames", by_code(WITH_HEADER))
def test_recorded_header_means_the_same_after_a_round_trip(frames: list[Frame]) -> None:
    for frame in frames:
        kind = header_of(frame)
        assert kind is not None
        header = kind.from_ext(frame.command.ext)
        written = header.to_ext()
        assert kind.from_ext(written) == header
        known = {field.encode_name for field in msgspec.structs.fields(kind)}
        sent = {name: text for name, text in frame.command.ext.items() if name in known}
        assert {name: written[name] for name in sent} == sent, frame


@pytest.mark.parametrize("frames", by_code(WITH_HEADER))
def test_recorded_header_has_no_field_that_we_do_not_know(frames: list[Frame]) -> None:
    for frame in frames:
        kind = header_of(frame)
        assert kind is not None
        known = {field.encode_name for field in msgspec.structs.fields(kind)}
        unknown = set(frame.command.ext) - known - COMMON_FIELDS
        assert not {name for name in unknown if (frame.request_code, name) not in IGNORED_FIELDS}


def test_recorded_request_without_typed_header_has_no_fields_of_its_own() -> None:
    for frame in FRAMES:
        if frame.request_code in HEADERLESS and not frame.is_response:
            assert set(frame.command.ext) <= COMMON_FIELDS, frame


@pytest.mark.parametrize(
    "frame", [frame for frame in FRAMES if frame.id in BROKEN_SENDS], ids=lambda frame: frame.id
)
def test_recorded_send_without_required_fields_is_refused_by_name(frame: Frame) -> None:
    with pytest.raises(HeaderError, match="required field 'a' is missing"):
        REQUEST_HEADERS[frame.request_code].from_ext(frame.command.ext)


@pytest.mark.parametrize("frames", by_code(WITH_BODY))
def test_recorded_body_means_the_same_after_a_round_trip(frames: list[Frame]) -> None:
    for frame in frames:
        kind = body_of(frame)
        value = java_json.decode(frame.command.body, kind)
        assert java_json.decode(java_json.encode(value), kind) == value
        assert java_json.decode(java_json.encode(value, bare_int_keys=True), kind) == value


@pytest.mark.parametrize(
    "frames", by_code([frame for frame in WITH_BODY if frame.sender in APACHE_5])
)
def test_body_of_apache_5_is_written_back_byte_for_byte(frames: list[Frame]) -> None:
    """Maps and sets keep the order in which they came, so nothing is left to chance."""
    for frame in frames:
        value = java_json.decode(frame.command.body, body_of(frame))
        # A name server writes routes for standard parsers, with keys in quotes.
        bare = frame.request_code != RequestCode.GET_ROUTEINFO_BY_TOPIC or (
            b'"brokerAddrs":{0' in frame.command.body
        )
        assert java_json.encode(value, bare_int_keys=bare) == frame.command.body, frame.id


@pytest.mark.parametrize("frames", by_code(WITH_BODY))
def test_typed_body_has_every_member_that_was_sent(frames: list[Frame]) -> None:
    """A member that we forgot or misspelt would vanish on the way through the typed value."""
    for frame in frames:
        value = java_json.decode(frame.command.body, body_of(frame))
        sent = java_json.parse(frame.command.body)
        assert_contains(java_json.parse(java_json.encode(value)), sent, f"frame {frame.id}")


def assert_contains(ours: object, theirs: object, place: str) -> None:
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), place
        for name, item in theirs.items():
            assert name in ours, f"{place}: {name} is lost"
            assert_contains(ours[name], item, f"{place}.{name}")
    elif isinstance(theirs, list):
        assert isinstance(ours, list), place
        assert len(ours) == len(theirs), place
        for index, item in enumerate(theirs):
            assert_contains(ours[index], item, f"{place}[{index}]")
    else:
        # Go sends the hashes of tags as text.
        assert ours == theirs or str(ours) == theirs, f"{place}: {ours!r} for {theirs!r}"


REGISTRATIONS: Final = [
    frame
    for frame in FRAMES
    if frame.request_code == RequestCode.REGISTER_BROKER and not frame.is_response
]


@pytest.mark.parametrize("frame", REGISTRATIONS, ids=lambda frame: frame.id)
def test_recorded_registration_is_understood_by_its_version(frame: Frame) -> None:
    header = RegisterBrokerRequest.from_ext(frame.command.ext)
    body = decode_register_body(
        frame.command.body, compressed=header.compressed, version=frame.command.version
    )
    topics = body.topic_config_serialize_wrapper.topic_config_table
    # One sender claims to be so old that its body is read as a bare table, which has no topics.
    assert bool(topics) == (b"topicName" in frame.command.body and frame.command.version > 0)
    assert all(name == topic.topic_name for name, topic in topics.items())
    compressed = encode_register_body(body, compressed=True)
    again = decode_register_body(compressed, compressed=True, version=frame.command.version or 479)
    # The compressed form has no place for these two.
    assert again.topic_config_serialize_wrapper.topic_config_table == {
        name: msgspec.structs.replace(topic, order=False, topic_sys_flag=0)
        for name, topic in topics.items()
    }
    if frame.sender in APACHE_5:
        assert header.body_crc32 == crc31(frame.command.body)
        assert header.enable_acting_master is False
        assert encode_register_body(body) == frame.command.body


def test_recorded_resets_are_read_by_the_function_that_knows_both_forms() -> None:
    frames = [frame for frame in WITH_BODY if b'"offsetTable":{{' in frame.command.body]
    resets = [
        frame
        for frame in frames
        if frame.request_code
        in {RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET}
    ]
    assert len(resets) >= 8
    for frame in resets:
        body = decode_reset_offset(frame.command.body)
        assert encode_reset_offset(body) == frame.command.body
        assert decode_reset_offset(encode_reset_offset(body, as_list=True)) == body


def test_recorded_batch_acknowledgement_is_read() -> None:
    frames = [frame for frame in WITH_BODY if frame.request_code == RequestCode.BATCH_ACK_MESSAGE]
    assert [decode_batch_ack(frame.command.body).broker_name for frame in frames] == [
        "broker-a",
        "broker-a",
    ]


def test_recorded_timer_checkpoints_are_written_back_byte_for_byte() -> None:
    bodies = [
        frame.command.body
        for frame in FRAMES
        if frame.request_code == RequestCode.GET_TIMER_CHECK_POINT and frame.is_response
    ]
    assert len(bodies) == 3
    for body in bodies:
        checkpoint = decode_timer_checkpoint(body)
        assert checkpoint.data_version.counter > 0
        assert encode_timer_checkpoint(checkpoint) == body


def test_recorded_settings_are_properties_text() -> None:
    bodies = {
        frame.command.body
        for frame in FRAMES
        if frame.request_code
        in {RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG}
        and not frame.is_response
    }
    assert {name: value for body in bodies for name, value in parse_properties(body).items()} == {
        "maxTransferCountOnMessageInMemory": "32",
        "brokerConfigPath": "x",
        "scanNotActiveBrokerInterval": "5000",
        "rocketmqHome": "x",
    }
    for body in bodies:
        assert format_properties(parse_properties(body)).rstrip() == body.rstrip()


def test_tag_codes_that_java_sent_are_the_ones_that_we_compute() -> None:
    subscriptions = [
        subscription
        for frame in WITH_BODY
        if frame.request_code == RequestCode.HEART_BEAT
        for consumer in java_json.decode(frame.command.body, HeartbeatData).consumer_data_set
        for subscription in consumer.subscription_data_set
    ]
    with_codes = [subscription for subscription in subscriptions if subscription.code_set]
    assert with_codes
    for subscription in with_codes:
        assert subscription.tag_codes == frozenset(subscription.code_set)
        assert subscription.tags is not None
        assert set(subscription.tags) == set(subscription.tags_set)


def test_running_consumers_tell_about_their_queues() -> None:
    infos = [
        java_json.decode(frame.command.body, ConsumerRunningInfo)
        for frame in WITH_BODY
        if frame.request_code == RequestCode.GET_CONSUMER_RUNNING_INFO
    ]
    assert infos
    for info in infos:
        assert info.mq_table
        assert all(queue.broker_name == "broker-a" for queue in info.mq_table)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
