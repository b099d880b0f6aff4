"""What the properties of a timer message mean, and the handle that takes it back."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.model.errors import MessageIllegal
from firearrow.model.message import (
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from firearrow.model.timer import RecallHandle, deliver_time, exact_time, is_timed, slot_time

NOW_MS = 1_700_000_000_000


def test_seconds_count_before_milliseconds_and_both_before_a_time() -> None:
    asked = {TIMER_DELIVER_MS: "5", TIMER_DELAY_MS: "20", TIMER_DELAY_SEC: "3"}
    assert deliver_time(asked, NOW_MS) == NOW_MS + 3_000
    del asked[TIMER_DELAY_SEC]
    assert deliver_time(asked, NOW_MS) == NOW_MS + 20
    del asked[TIMER_DELAY_MS]
    assert deliver_time(asked, NOW_MS) == 5


@pytest.mark.parametrize("text", ["", "soon", "1.5", "1e3", "٣", " 1", "9223372036854775808"])
def test_what_java_would_not_parse_is_refused(text: str) -> None:
    with pytest.raises(MessageIllegal, match="TIMER_DELAY_MS"):
        deliver_time({TIMER_DELAY_MS: text}, NOW_MS)


def test_signs_are_understood_as_java_does() -> None:
    assert deliver_time({TIMER_DELAY_MS: "-7"}, NOW_MS) == NOW_MS - 7
    assert deliver_time({TIMER_DELAY_MS: "+7"}, NOW_MS) == NOW_MS + 7


def test_a_message_that_was_in_the_timer_is_not_timed_again() -> None:
    assert is_timed({TIMER_DELIVER_MS: "1"})
    assert not is_timed({TIMER_DELIVER_MS: "1", TIMER_OUT_MS: "0"})
    assert not is_timed({"KEYS": "TIMER_DELIVER_MS"})


@given(st.integers(1, 1 << 50), st.sampled_from([1, 100, 200, 500, 1_000]))
def test_a_slot_ends_at_the_delivery_time_or_later(deliver_ms: int, precision_ms: int) -> None:
    slot_ms = slot_time(deliver_ms, precision_ms)
    assert slot_ms % precision_ms == 0
    assert slot_ms < deliver_ms <= slot_ms + precision_ms


@given(
    st.integers(NOW_MS, NOW_MS + 10**9), st.integers(1, 10**8), st.sampled_from(["ms", "s", "at"])
)
def test_the_exact_time_is_what_was_asked_for(stored_ms: int, delay: int, kind: str) -> None:
    asked = {
        "ms": {TIMER_DELAY_MS: str(delay)},
        "s": {TIMER_DELAY_SEC: str(delay)},
        "at": {TIMER_DELIVER_MS: str(stored_ms + delay)},
    }[kind]
    deliver_ms = deliver_time(asked, stored_ms)
    slot_ms = slot_time(deliver_ms, 1_000)
    due_ms = exact_time(asked, slot_ms=slot_ms, precision_ms=1_000, stored_ms=stored_ms)
    assert due_ms == deliver_ms


@given(st.integers(NOW_MS, NOW_MS + 10**9), st.integers(1, 10**8), st.integers(1, 10**9))
def test_what_was_stored_again_is_never_early(stored_ms: int, delay: int, later: int) -> None:
    asked = {TIMER_DELAY_MS: str(delay)}
    deliver_ms = deliver_time(asked, stored_ms)
    slot_ms = slot_time(deliver_ms, 1_000)
    due_ms = exact_time(asked, slot_ms=slot_ms, precision_ms=1_000, stored_ms=stored_ms + later)
    assert deliver_ms <= due_ms <= slot_ms + 1_000


def test_a_handle_is_base64_of_five_words() -> None:
    handle = RecallHandle("orders", "broker-a", NOW_MS + 1, "7F00000100")
    text = handle.encode()
    assert base64.urlsafe_b64decode(text) == b"v1 orders broker-a 1700000000001 7F00000100"
    assert RecallHandle.decode(text) == handle


@pytest.mark.parametrize(
    "raw", [b"v1 orders broker-a 5", b"v2 orders broker-a 5 key", b"\xff\xfe", b""]
)
def test_what_is_no_handle_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="recall handle"):
        RecallHandle.decode(base64.urlsafe_b64encode(raw).decode())
    with pytest.raises(ValueError, match="not Base64"):
        RecallHandle.decode("***")


def test_a_handle_whose_time_is_no_number_is_for_no_time() -> None:
    text = base64.urlsafe_b64encode(b"v1 orders broker-a soon key").decode()
    assert RecallHandle.decode(text).time_ms == -1
