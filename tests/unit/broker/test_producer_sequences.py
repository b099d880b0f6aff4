from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.broker.producer_sequences import (
    ProducerSequences,
    SavedSequences,
    SequenceKey,
    Stored,
    parse_number,
)
from firearrow.hot.layout import ScannedRecord
from firearrow.model.errors import MessageIllegal

NAMED = {"FA_PRODUCER": "p", "FA_SEQ": "7"}


def stored(number: int, **fields: int) -> Stored:
    return Stored(number * 100, number * 100 + 100, 0, number)._replace(**fields)


def key(number: int, producer: str = "p", topic: str = "orders") -> SequenceKey:
    return SequenceKey(producer, topic, number)


def record(
    number: int, position: int, *, topic: str = "orders", queue_id: int = 0, text: str = ""
) -> ScannedRecord:
    properties = f"FA_PRODUCER\x01p\x02FA_SEQ\x01{number}\x02{text}"
    return ScannedRecord(0, 100, topic, queue_id, position, position * 100, 0, 0, 0, 0, properties)


# --- keys -------------------------------------------------------------------------------------


def test_message_without_a_producer_has_no_key_and_one_that_comes_back_has_none() -> None:
    table = ProducerSequences(4, 100)
    assert table.key_of("orders", {"FA_SEQ": "7"}, 0) is None
    assert table.key_of("orders", NAMED, 0) == key(7)
    assert table.key_of("orders", NAMED, 1) is None
    assert table.key_of("orders", NAMED | {"RETRY_TOPIC": "orders"}, 0) is None
    assert table.key_of("%RETRY%billing", NAMED, 0) is None
    assert table.key_of("%DLQ%billing", NAMED, 0) is None
    assert ProducerSequences(4, 0).key_of("orders", NAMED, 0) is None


@pytest.mark.parametrize("number", ["", "x", "-1", "1.5", "\u0661", "9" * 19, "1" * 30])
def test_sequence_that_is_no_number_is_illegal(number: str) -> None:
    with pytest.raises(MessageIllegal, match="FA_SEQ"):
        ProducerSequences(4, 100).key_of("orders", NAMED | {"FA_SEQ": number}, 0)


def test_name_of_a_producer_has_a_limit() -> None:
    with pytest.raises(MessageIllegal, match="128"):
        ProducerSequences(4, 100).key_of("orders", NAMED | {"FA_PRODUCER": "p" * 129}, 0)


def test_largest_number_is_that_of_java() -> None:
    assert parse_number("9223372036854775807") == (1 << 63) - 1
    assert parse_number("9223372036854775808") is None


# --- windows ----------------------------------------------------------------------------------


def test_what_was_sent_is_known_for_its_producer_and_topic_only() -> None:
    table = ProducerSequences(4, 100)
    table.remember(key(1), stored(1))
    assert table.find(key(1)) == stored(1)
    assert table.find(key(2)) is None
    assert table.find(key(1, producer="q")) is None
    assert table.find(key(1, topic="other")) is None
    assert table.duplicates == 1


def test_only_the_largest_numbers_are_kept_and_what_is_below_them_is_refused() -> None:
    table = ProducerSequences(3, 100)
    for number in (5, 9, 7, 3):
        table.remember(key(number), stored(number))
    assert [table.find(key(number)) is not None for number in (5, 7, 9)] == [True] * 3
    for unknown in (3, 2, 0):
        with pytest.raises(MessageIllegal, match="not above 3"):
            table.find(key(unknown))
    assert table.find(key(4)) is None  # a gap: it may still come
    assert len(table) == 3


def test_producers_that_were_not_heard_of_for_longest_are_forgotten_first() -> None:
    table = ProducerSequences(10, 4)
    for number in range(2):
        table.remember(key(number, "one"), stored(number))
        table.remember(key(number, "two"), stored(number))
    assert table.find(key(0, "one")) is not None
    table.remember(key(0, "three"), stored(9))
    assert table.find(key(0, "two")) is None
    assert table.find(key(1, "one")) is not None
    assert len(table) == 3


def test_topic_that_is_gone_takes_its_numbers_with_it() -> None:
    table = ProducerSequences(10, 100)
    table.remember(key(1), stored(1))
    table.remember(key(1, topic="other"), stored(1))
    table.forget_topic("orders")
    assert table.find(key(1)) is None
    assert table.find(key(1, topic="other")) is not None
    assert len(table) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 12)), max_size=60
    ),
    st.integers(1, 5),
    st.integers(1, 9),
)
def test_table_never_forgets_what_it_promises_and_never_grows_beyond_its_limits(
    sends: list[tuple[str, str, int]], window: int, entries_max: int
) -> None:
    """Beside a plain list: an answer is the first place, and what is refused is really too old."""
    table = ProducerSequences(window, entries_max)
    first: dict[SequenceKey, Stored] = {}
    for place, (producer, topic, number) in enumerate(sends):
        one = SequenceKey(producer, topic, number)
        try:
            known = table.find(one)
        except MessageIllegal:
            larger = {k.number for k in first if k[:2] == one[:2] and k.number > number}
            assert len(larger) >= min(window, entries_max)
            continue
        if known is not None:
            assert known == first[one]
            continue
        table.remember(one, stored(place))
        first[one] = stored(place)
        assert len(table) <= entries_max
        assert sum(len(p.sequences) for p in table.snapshot(0).producers) == len(table)
        assert all(len(p.sequences) <= window for p in table.snapshot(0).producers)


# --- lasting ----------------------------------------------------------------------------------


def test_what_was_saved_is_known_again_but_for_what_the_log_has_lost() -> None:
    table = ProducerSequences(3, 100)
    for number in range(5):
        table.remember(key(number), stored(number, messages=2))
    raw = msgspec.json.encode(table.snapshot(450))
    again = ProducerSequences(3, 100)
    again.load(msgspec.json.decode(raw, type=SavedSequences), log_end=400)
    assert again.find(key(3)) == stored(3, messages=2)
    assert again.find(key(4)) is None
    with pytest.raises(MessageIllegal):
        again.find(key(1))


def test_log_tells_what_was_sent_since_and_the_first_of_several_counts() -> None:
    table = ProducerSequences(10, 100)
    table.remember(key(1), stored(1))
    table.follow(
        [
            record(1, 9),  # a copy
            record(2, 10),
            record(
                3,
                11,
                topic="SCHEDULE_TOPIC_XXXX",
                queue_id=4,
                text="REAL_TOPIC\x01orders\x02REAL_QID\x012\x02",
            ),
            record(3, 12, queue_id=2, text="REAL_TOPIC\x01orders\x02REAL_QID\x012\x02"),
            record(4, 13, text="RETRY_TOPIC\x01orders\x02"),
            record(5, 14, topic="%RETRY%billing"),
        ]
    )
    assert table.find(key(1)) == stored(1)
    assert table.find(key(2)) == Stored(1_000, 1_100, 0, 10)
    assert table.find(key(3)) == Stored(1_100, 1_200, 2, 11)
    assert table.find(key(4)) is None
    assert len(table) == 3


def test_batch_in_the_log_is_one_number() -> None:
    table = ProducerSequences(10, 100)
    table.follow([record(1, 5), record(1, 6), record(1, 7), record(1, 9)])
    assert table.find(key(1)) == Stored(500, 800, 0, 5, 3)
