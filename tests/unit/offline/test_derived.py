from __future__ import annotations

import pytest

from firearrow.hot import ScannedRecord
from firearrow.model.delay import DELAY_LEVELS, parse_delay_levels
from firearrow.offline.derived import (
    BATCH_UNIT,
    QueueKey,
    QueueRuns,
    UnitRules,
    keys_of,
    light_queues_of,
    messages_in,
    tags_code_of,
)
from firearrow.store.consume_queue import ENTRY as UNIT

LEVELS = parse_delay_levels(DELAY_LEVELS)


def record(
    topic: str = "Orders",
    queue_id: int = 0,
    queue_offset: int = 0,
    *,
    sys_flag: int = 0,
    tags_code: int = 7,
    physical: int = 0,
) -> ScannedRecord:
    return ScannedRecord(
        0, 100, topic, queue_id, queue_offset, physical, sys_flag, 5_000, 0, tags_code, ""
    )


class Taken:
    """Remembers what runs hand over, and what they say about jumps."""

    def __init__(self, *, light_queues: bool = False) -> None:
        self.units: list[tuple[QueueKey, int, int]] = []
        self.raw: list[bytes] = []
        self.jumps: list[tuple[int, int, bool]] = []
        self.runs = QueueRuns(
            self.take,
            rules=UnitRules(
                batch_topics={"Batches"}, light_queues=light_queues, delay_levels_ms=LEVELS
            ),
            jump=lambda jump: self.jumps.append((jump.expected, jump.offset, jump.is_wrong)),
        )

    def take(self, key: QueueKey, first: int, units: bytes) -> None:
        self.units.append((key, first, len(units) // key.unit_bytes))
        self.raw.append(units)


ORDERS = QueueKey("Orders", 0, is_batch=False)


def test_units_with_consecutive_offsets_are_handed_over_at_once() -> None:
    taken = Taken()
    for offset in range(5):
        taken.runs.add(record(queue_offset=offset, physical=offset * 100), {})
    assert taken.units == []
    taken.runs.finish()
    assert taken.units == [(ORDERS, 0, 5)]
    assert taken.raw[0] == b"".join(UNIT.pack(offset * 100, 100, 7) for offset in range(5))
    taken.runs.add(record(queue_offset=5), {})
    taken.runs.finish()
    assert taken.units[1:] == [(ORDERS, 5, 1)]
    assert taken.jumps == []


@pytest.mark.parametrize(
    ("offsets", "runs", "jumps"),
    [
        ([3, 4, 8, 9, 0, 1], [(3, 2), (8, 2), (0, 2)], [(5, 8, False), (10, 0, False)]),
        ([3, 4, 519, 6, 7], [(3, 2), (6, 2)], [(5, 519, True)]),  # 5 was meant
        ([3, 4, 1, 6, 7], [(3, 2), (6, 2)], [(5, 1, True)]),
        ([3, 4, 0, 6, 7], [(3, 2), (6, 2)], [(5, 0, True)]),
        ([3, 4, 9, 5, 6], [(3, 2), (5, 2)], [(5, 9, True)]),  # of another queue
        ([3, 4, 1 << 50], [(3, 2)], [(5, 1 << 50, True)]),
        ([3, 4, 2], [(3, 2)], [(5, 2, True)]),
        ([3, 4, 0], [(3, 2), (0, 1)], [(5, 0, False)]),
        ([3, 4, 7], [(3, 2), (7, 1)], [(5, 7, False)]),
        ([-1, 3], [(3, 1)], [(0, -1, True)]),
        ([1 << 60, 3], [(3, 1)], [(0, 1 << 60, True)]),
        ([3, 6, 9, 10], [(3, 1), (6, 1), (9, 2)], [(4, 6, False), (7, 9, False)]),
    ],
)
def test_an_offset_that_does_not_follow_is_explained_by_the_next(
    offsets: list[int], runs: list[tuple[int, int]], jumps: list[tuple[int, int, bool]]
) -> None:
    taken = Taken()
    for offset in offsets:
        taken.runs.add(record(queue_offset=offset), {})
    taken.runs.finish()
    assert [(first, count) for _, first, count in taken.units] == runs
    assert taken.jumps == jumps


def test_a_batch_takes_as_many_offsets_as_it_has_messages() -> None:
    taken = Taken()
    taken.runs.add(record("Batches", sys_flag=0xC0), {"INNER_NUM": "3"})
    taken.runs.add(record("Batches", queue_offset=3), {})
    taken.runs.finish()
    assert taken.jumps == []
    assert taken.units == [(QueueKey("Batches", 0, is_batch=True), 0, 2)]
    assert taken.raw[0] == BATCH_UNIT.pack(0, 100, 7, 5_000, 0, 3, -1, 0) + BATCH_UNIT.pack(
        0, 100, 7, 5_000, 3, 1, -1, 0
    )


@pytest.mark.parametrize("sys_flag", [0x4, 0xC])
def test_what_is_not_committed_has_no_unit(sys_flag: int) -> None:
    taken = Taken()
    taken.runs.add(record(sys_flag=sys_flag), {})
    taken.runs.finish()
    assert taken.units == []


def test_waiting_units_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firearrow.offline.derived.PENDING_BYTES_MAX", 99)
    taken = Taken()
    for offset in range(12):
        taken.runs.add(record(queue_offset=offset), {})
    assert [count for _, _, count in taken.units] == [5, 5]


def test_light_queues_have_units_only_where_they_are_switched_on() -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "4,0"}
    for on in (False, True):
        taken = Taken(light_queues=on)
        taken.runs.add(record(), properties)
        taken.runs.finish()
        topics = [(key.topic, first) for key, first, _ in taken.units]
        assert topics == [("Orders", 0)] + [("%LMQ%a", 4), ("%LMQ%b", 0)] * on
        assert len(set(taken.raw)) == 1


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "%RETRY%g", "rmq_sys_wheel_timer"])
def test_system_topics_have_no_light_queues(topic: str) -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "4"}
    assert list(light_queues_of(record(topic), properties)) == []


def test_names_that_are_no_light_queues_are_left_out() -> None:
    properties = {
        "INNER_MULTI_DISPATCH": "%LMQ%a/b,Plain,%LMQ%c,%LMQ%d",
        "INNER_MULTI_QUEUE_OFFSET": "1,2,three",
    }
    assert list(light_queues_of(record(), properties)) == []


@pytest.mark.parametrize(
    ("level", "code"),
    [
        ("1", 5_000 + 1_000),
        ("18", 5_000 + 7_200_000),
        ("99", 5_000 + 7_200_000),
        ("0", 7),
        ("-1", 7),
        ("soon", 7),
        ("", 7),
    ],
)
def test_a_delayed_message_has_its_time_of_delivery_as_tags_code(level: str, code: int) -> None:
    properties = {"DELAY": level} if level else {}
    assert tags_code_of(record("SCHEDULE_TOPIC_XXXX"), properties, LEVELS) == code
    assert tags_code_of(record("Orders"), properties, LEVELS) == 7


def test_keys_are_the_unique_one_and_every_word() -> None:
    assert keys_of({"UNIQ_KEY": "u", "KEYS": "a  b a"}) == ["u", "a", "b", "a"]
    assert keys_of({}) == []


@pytest.mark.parametrize("number", ["0", "-3", "40000", "x"])
def test_a_number_of_messages_that_makes_no_sense_is_one(number: str) -> None:
    assert messages_in(record(sys_flag=0xC0), {"INNER_NUM": number}) == 1
