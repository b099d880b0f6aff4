"""The literal records were written by Apache RocketMQ 5.3.3; ``|`` and ``$`` are its separators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firearrow.client.trace_format import (
    EndTransaction,
    LocalTransactionState,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TracedMessageType,
    TraceFormatError,
    TraceRecord,
    decode_trace,
    encode_trace,
    trace_keys,
)


def drawn(text: str) -> str:
    return text.replace("|", "\x01").replace("$", "\x02")


PUB = Pub(
    timestamp_ms=1_700_000_000_123,
    region_id="DefaultRegion",
    group="GID",
    topic="orders",
    message_id="ID1",
    tags=None,
    keys="k1 k2",
    store_host="127.0.0.1:10911",
    body_bytes=5,
    cost_ms=12,
    message_type=TracedMessageType.DELAY,
    offset_message_id="OFF1",
    success=True,
)
SUB_BEFORE = SubBefore(
    timestamp_ms=1_700_000_000_123,
    region_id="DefaultRegion",
    group="GID",
    request_id="REQ1",
    message_id="ID1",
    retry_times=2,
    keys="k1 k2",
)
SUB_AFTER = SubAfter(
    request_id="REQ1",
    message_id="ID1",
    cost_ms=12,
    success=True,
    keys="k1 k2",
    context_code=3,
    timestamp_ms=1_700_000_000_123,
    group="GID",
)
END_TRANSACTION = EndTransaction(
    timestamp_ms=1_700_000_000_123,
    region_id="DefaultRegion",
    group="GID",
    topic="orders",
    message_id="ID1",
    keys="k1 k2",
    store_host="127.0.0.1:10911",
    transaction_id="TX1",
    state=LocalTransactionState.COMMIT_MESSAGE,
    from_check=False,
)
RECALL = Recall(
    timestamp_ms=1_700_000_000_123,
    region_id="DefaultRegion",
    group="GID",
    topic="orders",
    message_id="ID1",
    success=True,
)
PUB_START = "Pub|1700000000123|DefaultRegion|GID|orders|ID1|null|k1 k2|127.0.0.1:10911|5|12|3|"
BEFORE_START = "SubBefore|1700000000123|DefaultRegion|GID|REQ1|"
END_START = (
    "EndTransaction|1700000000123|DefaultRegion|GID|orders|ID1|null|k1 k2|127.0.0.1:10911|2|"
)
WRITTEN_BY_JAVA: list[tuple[str, list[TraceRecord]]] = [
    (PUB_START + "OFF1|true$", [PUB]),
    (
        f"{BEFORE_START}ID1|2|k1 k2${BEFORE_START}ID2|2|null$",
        [SUB_BEFORE, replace(SUB_BEFORE, message_id="ID2", keys=None)],
    ),
    (
        "SubAfter|REQ1|ID1|12|true|k1 k2|3|1700000000123|GID$",
        [SUB_AFTER],
    ),
    (
        "SubAfter|REQ1|ID2|12|true|null|3|1700000000123|GID$",
        [replace(SUB_AFTER, message_id="ID2", keys=None)],
    ),
    (
        "SubAfter|REQ1|ID1|12|true|k1 k2|3|$",  # for the access channel CLOUD
        [replace(SUB_AFTER, timestamp_ms=None, group=None)],
    ),
    (END_START + "TX1|COMMIT_MESSAGE|false$", [END_TRANSACTION]),
    ("Recall|1700000000123|DefaultRegion|GID|orders|ID1|true$", [RECALL]),
]


@pytest.mark.parametrize(("text", "records"), WRITTEN_BY_JAVA)
def test_records_are_written_as_java_writes_them(text: str, records: list[TraceRecord]) -> None:
    assert encode_trace(records) == drawn(text)


@pytest.mark.parametrize(("text", "records"), WRITTEN_BY_JAVA)
def test_what_java_wrote_is_read(text: str, records: list[TraceRecord]) -> None:
    assert decode_trace(drawn(text)) == records


def test_records_of_all_types_follow_each_other() -> None:
    text = "".join(text for text, _ in WRITTEN_BY_JAVA)
    assert decode_trace(drawn(text)) == [one for _, records in WRITTEN_BY_JAVA for one in records]


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (PUB_START + "true$", replace(PUB, offset_message_id=None)),
        (PUB_START + "OFF1|true|10.0.0.7$", replace(PUB, client_host="10.0.0.7")),
        (PUB_START + "OFF1|true|10.0.0.7|more$", replace(PUB, client_host="10.0.0.7")),
        (
            BEFORE_START + "ID1|2|k1 k2|10.0.0.7$",
            replace(SUB_BEFORE, client_host="10.0.0.7"),
        ),
        (
            "SubAfter|REQ1|ID1|12|true|k1 k2$",
            replace(SUB_AFTER, context_code=0, timestamp_ms=None, group=None),
        ),
        (
            "SubAfter|REQ1|ID1|12|true|k1 k2|3$",
            replace(SUB_AFTER, timestamp_ms=None, group=None),
        ),
    ],
)
def test_records_of_other_versions_are_read(text: str, record: TraceRecord) -> None:
    assert decode_trace(drawn(text)) == [record]


def test_a_clients_host_is_read_but_never_written() -> None:
    assert encode_trace([replace(PUB, client_host="10.0.0.7")]) == encode_trace([PUB])


def test_types_that_nobody_knows_yet_are_left_out() -> None:
    text = "Teleport|1|2$$Recall|1700000000123|DefaultRegion|GID|orders|ID1|true$"
    assert decode_trace(drawn(text)) == [RECALL]


def test_nothing_reads_as_nothing() -> None:
    assert decode_trace("") == []
    assert encode_trace([]) == ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Pub|1|r|g|t|id|null|null|host|5|12|3$", "type Pub has 12 fields; number 13 is missing"),
        ("Pub|soon|r|g|t|id|null|null|host|5|12|3|true$", "field 2 .* not a number: 'soon'"),
        ("Pub|1_0|r|g|t|id|null|null|host|5|12|3|true$", "field 2 .* not a number: '1_0'"),
        ("Pub|1|r|g|t|id|null|null|host|5|12|9|true$", "field 12 .* not a message type"),
        ("SubBefore|1|r|g|req|id|2$", "type SubBefore has 7 fields; number 8 is missing"),
        ("SubAfter|req|id|12|true$", "number 6 is missing"),
        ("EndTransaction|1|r|g|t|id|null|null|host|2|tx|MAYBE|true$", "not a transaction state"),
        ("Recall|1|r|g|t$", "number 6 is missing"),
    ],
)
def test_a_record_that_is_not_what_it_says_is_named(text: str, complaint: str) -> None:
    with pytest.raises(TraceFormatError, match=complaint):
        decode_trace(drawn(text))


@pytest.mark.parametrize("text", ["a\x01b", "a\x02b"])
def test_a_field_with_a_separator_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="contains a separator"):
        encode_trace([replace(PUB, keys=text)])


def test_a_time_without_a_group_is_refused() -> None:
    with pytest.raises(ValueError, match="a time and a group"):
        replace(SUB_AFTER, group=None)


def test_a_trace_is_found_by_ids_and_keys_of_all_its_messages() -> None:
    before = replace(SUB_BEFORE, message_id="ID2", keys="k2  k3 ")
    records: list[TraceRecord] = [PUB, before, SUB_AFTER, RECALL]
    assert trace_keys(records) == "ID1 k1 k2 ID2 k3"
    assert trace_keys([replace(PUB, keys=None)]) == "ID1"
