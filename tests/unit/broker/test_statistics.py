from __future__ import annotations

import time

from firearrow.broker.statistics import SAMPLE_MS, BrokerStatistics
from firearrow.testing import ManualClock

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


async def let_pass(clock: ManualClock, statistics: BrokerStatistics, elapsed_ms: int) -> None:
    """Time goes by, and the timer samples as it would."""
    for _ in range(elapsed_ms // SAMPLE_MS):
        await clock.advance(SAMPLE_MS)
        statistics.sample()


async def test_sums_forget_what_is_older_than_their_window() -> None:
    clock = ManualClock()
    statistics = BrokerStatistics(clock)
    statistics.add("TOPIC_PUT_NUMS", "orders", 5)
    sums = statistics.sums("TOPIC_PUT_NUMS", "orders")
    assert sums is not None
    assert [one.amount for one in sums] == [5, 5, 5]
    for elapsed_ms, wanted in (
        (2 * MINUTE_MS, [0, 5, 5]),
        (2 * HOUR_MS, [0, 0, 5]),
        (30 * HOUR_MS, [0, 0, 0]),
    ):
        await let_pass(clock, statistics, elapsed_ms)
        sums = statistics.sums("TOPIC_PUT_NUMS", "orders")
        assert sums is not None
        assert [one.amount for one in sums] == wanted, elapsed_ms


async def test_steady_traffic_shows_its_rate_in_every_window() -> None:
    clock = ManualClock()
    statistics = BrokerStatistics(clock)
    for _ in range(30 * HOUR_MS // SAMPLE_MS):
        statistics.add("TOPIC_PUT_NUMS", "orders", 20, times=4)
        await clock.advance(SAMPLE_MS)
        statistics.sample()
    sums = statistics.sums("TOPIC_PUT_NUMS", "orders")
    assert sums is not None
    for one in sums:
        assert one.tps == 2.0
        assert one.average == 5.0
    minute, hour, day = sums
    assert 50_000 <= minute.elapsed_ms <= MINUTE_MS
    assert 50 * MINUTE_MS <= hour.elapsed_ms <= HOUR_MS
    assert 23 * HOUR_MS <= day.elapsed_ms <= 24 * HOUR_MS


async def test_counter_that_rests_keeps_one_sample_of_each_kind() -> None:
    clock = ManualClock()
    statistics = BrokerStatistics(clock)
    statistics.add("TOPIC_PUT_NUMS", "orders")
    await let_pass(clock, statistics, 30 * HOUR_MS)
    counter = statistics.find("TOPIC_PUT_NUMS", "orders")
    assert counter is not None
    assert [len(window) for window in (counter.minute, counter.hour, counter.day)] == [1, 1, 1]
    statistics.add("TOPIC_PUT_NUMS", "orders")
    sums = statistics.sums("TOPIC_PUT_NUMS", "orders")
    assert sums is not None
    assert [one.amount for one in sums] == [1, 1, 1]


async def test_rates_of_the_broker_follow_ten_sixty_and_six_hundred_seconds() -> None:
    clock = ManualClock()
    statistics = BrokerStatistics(clock)
    for _ in range(100):  # about a quarter of an hour of one message per second
        statistics.puts.count += 10
        await clock.advance(SAMPLE_MS)
        statistics.sample()
    assert statistics.rates()["puts"] == (1.0, 1.0, 1.0)
    await let_pass(clock, statistics, SAMPLE_MS)
    ten, sixty, many = statistics.rates()["puts"]
    assert ten == 0.0
    assert 0.7 < sixty < 1.0
    assert 0.95 < many < 1.0


def test_first_message_of_a_young_broker_is_not_a_storm() -> None:
    statistics = BrokerStatistics(ManualClock())
    statistics.puts.count += 1
    statistics.add("TOPIC_PUT_NUMS", "orders")
    assert statistics.rates()["puts"] == (1.0, 1.0, 1.0)
    assert statistics.tps("TOPIC_PUT_NUMS", "orders") == 1.0


async def test_totals_of_the_morning_move_on_at_local_midnight() -> None:
    clock = ManualClock()
    local = time.localtime(clock.now_ms() / 1000)
    since_midnight_s = local.tm_hour * 3600 + local.tm_min * 60 + local.tm_sec
    statistics = BrokerStatistics(clock)
    statistics.puts.count = 7
    statistics.gets.count = 3
    statistics.sample()
    assert statistics.today_morning == (0, 0)
    await clock.advance((86_400 - since_midnight_s + 60) * 1000)
    statistics.sample()
    assert statistics.today_morning == (7, 3)
    statistics.puts.count = 10
    await clock.advance(86_400_000)
    statistics.sample()
    assert statistics.yesterday_morning == (7, 3)
    assert statistics.today_morning == (10, 3)


def test_counters_of_a_deleted_topic_are_forgotten_and_no_others() -> None:
    statistics = BrokerStatistics(ManualClock())
    statistics.add("TOPIC_PUT_NUMS", "orders")
    statistics.add("GROUP_GET_NUMS", "orders@billing")
    statistics.add("TOPIC_PUT_NUMS", "orders-eu")
    statistics.forget("orders")
    assert statistics.find("TOPIC_PUT_NUMS", "orders") is None
    assert statistics.find("GROUP_GET_NUMS", "orders@billing") is None
    assert statistics.find("TOPIC_PUT_NUMS", "orders-eu") is not None
    assert statistics.tps("TOPIC_PUT_NUMS", "orders") == 0.0


def test_what_is_counted_elsewhere_is_fetched_before_anybody_looks() -> None:
    statistics = BrokerStatistics(ManualClock())
    elsewhere = [4]

    def give() -> None:
        if elsewhere:
            statistics.add("TOPIC_PUT_NUMS", "orders", elsewhere.pop())

    statistics.before_reading.append(give)
    counter = statistics.find("TOPIC_PUT_NUMS", "orders")
    assert counter is not None
    assert counter.count == 4
