from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

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

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
WORD = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]))
MAYBE = st.none() | WORD.filter(lambda text: text != "null")  # nothing tells it from a missing one
IDS = st.text("0123456789ABCDEF", min_size=1)
SHARED = {"timestamp_ms": INT64, "region_id": WORD, "group": WORD, "message_id": IDS}
TYPES = st.sampled_from(TracedMessageType)
RECORDS: st.SearchStrategy[TraceRecord] = st.one_of(
    st.builds(
        Pub,
        **SHARED,
        topic=WORD,
        tags=MAYBE,
        keys=MAYBE,
        store_host=WORD,
        body_bytes=INT64,
        cost_ms=INT64,
        message_type=TYPES,
        offset_message_id=MAYBE,
        success=st.booleans(),
        client_host=st.none(),
    ),
    st.builds(
        SubBefore, **SHARED, request_id=WORD, retry_times=INT64, keys=MAYBE, client_host=st.none()
    ),
    st.builds(
        SubAfter,
        request_id=WORD,
        message_id=IDS,
        cost_ms=INT64,
        success=st.booleans(),
        keys=MAYBE,
        context_code=INT64,
        timestamp_ms=INT64,
        group=WORD,
    ),
    st.builds(
        SubAfter,
        request_id=WORD,
        message_id=IDS,
        cost_ms=INT64,
        success=st.booleans(),
        keys=MAYBE,
        context_code=INT64,
        timestamp_ms=st.none(),
        group=st.none(),
    ),
    st.builds(
        EndTransaction,
        **SHARED,
        topic=WORD,
        tags=MAYBE,
        keys=MAYBE,
        store_host=WORD,
        message_type=TYPES,
        transaction_id=MAYBE,
        state=st.sampled_from(LocalTransactionState),
        from_check=st.booleans(),
    ),
    st.builds(Recall, **SHARED, topic=WORD, success=st.booleans()),
)


@given(st.lists(RECORDS, max_size=6))
def test_what_is_written_reads_back_the_same(records: list[TraceRecord]) -> None:
    assert decode_trace(encode_trace(records)) == records


@given(st.lists(RECORDS, max_size=6))
def test_a_trace_is_found_by_each_of_its_ids_and_keys_once(records: list[TraceRecord]) -> None:
    expected = {record.message_id for record in records}
    for record in records:
        if not isinstance(record, Recall):
            expected |= {word for word in (record.keys or "").split(" ") if word}
    keys = trace_keys(records)
    assert sorted(keys.split(" ") if keys else []) == sorted(expected)


HEADS = st.sampled_from(["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall", "", "Else"])
FIELDS = st.lists(st.sampled_from(["1", "true", "null", "", "COMMIT_MESSAGE", "x"]), max_size=16)


@given(st.lists(st.builds(lambda head, rest: "\x01".join([head, *rest]), HEADS, FIELDS)))
def test_any_text_is_read_or_refused(parts: list[str]) -> None:
    with suppress(TraceFormatError):  # and nothing else
        assert len(decode_trace("\x02".join(parts))) <= len(parts)
