"""The rules behind Admin that need no server: resets, ids, attributes, traces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.base.runtime import SystemClock
from firearrow.client.admin_messages import place_of
from firearrow.client.admin_offsets import check_target
from firearrow.client.admin_results import assemble_trace, plan_queue
from firearrow.client.admin_topics import attributes_text
from firearrow.client.errors import InvalidRequest
from firearrow.client.ids import UniqueKeys
from firearrow.client.trace_format import Pub, SubAfter, SubBefore
from firearrow.hot import offset_message_id
from firearrow.model.topic import MessageQueue

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)

# --- resets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("committed", "wanted", "again", "skipped"),
    [
        (50, 20, 30, 0),
        (50, 80, 0, 30),
        (50, 50, 0, 0),
        (5, 10, 0, 0),  # what is between has expired
        (5, 20, 0, 10),
        (500, 60, 40, 0),  # it claims more than there is
        (None, 10, 0, 0),
        (None, 30, 0, 20),
    ],
)
def test_a_reset_counts_messages_that_come_again_and_that_are_skipped(
    committed: int | None, wanted: int, again: int, skipped: int
) -> None:
    reset = plan_queue(QUEUE, committed=committed, wanted=wanted, ends=(10, 100), force=True)
    assert (reset.target, reset.again, reset.skipped) == (wanted, again, skipped)


@given(
    committed=st.none() | st.integers(0, 200),
    wanted=st.integers(0, 200),
    least=st.integers(0, 100),
    count=st.integers(0, 100),
    force=st.booleans(),
)
def test_a_reset_stays_within_the_queue_and_without_force_never_skips(
    committed: int | None, wanted: int, least: int, count: int, force: bool
) -> None:
    ends = (least, least + count)
    reset = plan_queue(QUEUE, committed=committed, wanted=wanted, ends=ends, force=force)
    assert 0 <= reset.again <= count
    assert 0 <= reset.skipped <= count
    assert not (reset.again and reset.skipped)
    if reset.kept:
        assert (force, reset.target, reset.skipped) == (False, committed, 0)
    else:
        assert ends[0] <= reset.target <= ends[1]
    if not force and committed is not None:
        assert reset.target <= committed


@pytest.mark.parametrize("to", [0, 1_700_000_000_000, "earliest", "latest", {QUEUE: 3}])
def test_a_reset_goes_to_a_time_an_end_or_offsets(to: Any) -> None:
    check_target(to)


@pytest.mark.parametrize("to", [-1, True, 1.5, None, "now", "", {}, {0: 3}, {QUEUE: "3"}, [QUEUE]])
def test_a_reset_goes_nowhere_else(to: Any) -> None:
    with pytest.raises(InvalidRequest):
        check_target(to)


# --- ids --------------------------------------------------------------------------------------


def test_a_brokers_id_names_its_address_and_the_place_in_its_log() -> None:
    assert place_of(offset_message_id(b"\x7f\0\0\1", 10911, 77)) == ("127.0.0.1:10911", 77)
    ipv6 = bytes(15) + b"\1"
    assert place_of(offset_message_id(ipv6, 10911, 77)) == ("[::1]:10911", 77)


@given(pid=st.integers(1, 65_535), ip=st.binary(min_size=4, max_size=4))
def test_a_producers_id_is_not_taken_for_a_place(pid: int, ip: bytes) -> None:
    assert place_of(UniqueKeys(ip, pid, SystemClock()).next()) is None


@pytest.mark.parametrize("text", ["", "no id", "7F" * 15, "7F" * 17])
def test_other_text_is_no_place_either(text: str) -> None:
    assert place_of(text) is None


# --- attributes -------------------------------------------------------------------------------


def test_attributes_are_set_and_removed_in_one_line() -> None:
    text = attributes_text({"message.type": "FIFO", "reserve.time": None})
    assert text == "+message.type=FIFO,-reserve.time"
    assert attributes_text({}) is None
    assert attributes_text(None) is None


@pytest.mark.parametrize(("key", "value"), [("", "a"), ("a=b", "c"), ("a", "b,c"), ("a,b", None)])
def test_attributes_that_would_read_as_others_are_refused(key: str, value: str | None) -> None:
    with pytest.raises(InvalidRequest, match="attribute"):
        attributes_text({key: value})


# --- traces -----------------------------------------------------------------------------------


def sent(msg_id: str, timestamp_ms: int = 1) -> Pub:
    return Pub(
        timestamp_ms=timestamp_ms,
        region_id="",
        group="sender",
        topic="orders",
        message_id=msg_id,
        store_host="127.0.0.1:10911",
        body_bytes=1,
        cost_ms=1,
        success=True,
    )


def before(request_id: str, timestamp_ms: int, msg_id: str = "M") -> SubBefore:
    return SubBefore(
        timestamp_ms=timestamp_ms,
        region_id="",
        group="billing",
        request_id=request_id,
        message_id=msg_id,
        retry_times=0,
    )


def after(request_id: str, timestamp_ms: int, *, success: bool = True) -> SubAfter:
    return SubAfter(
        request_id=request_id,
        message_id="M",
        cost_ms=5,
        success=success,
        timestamp_ms=timestamp_ms,
        group="billing",
    )


def test_a_trace_pairs_the_records_of_one_message_in_their_order() -> None:
    trace = assemble_trace(
        "M",
        [
            before("second", 50),
            after("first", 20, success=False),
            sent("M", 9),
            sent("other"),
            before("first", 10),
            before("first", 10),  # the trace itself was sent twice
            before("alien", 1, msg_id="other"),
            after("lost", 45),
        ],
    )
    assert trace.published == (sent("M", 9),)
    assert [(one.group, one.success) for one in trace.deliveries] == [
        ("billing", False),
        ("billing", True),  # nobody heard of its beginning
        ("billing", None),  # still running
    ]
    assert trace.deliveries[0].before == before("first", 10)
    assert trace.deliveries[1].before is None
