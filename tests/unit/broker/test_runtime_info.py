from __future__ import annotations

import pytest

from firearrow.broker.runtime_info import distribution, human_size, percentile, rate_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1024.0 KiB"),
        (1 << 30, "1.0 GiB"),
        (252 << 30, "252.0 GiB"),
    ],
)
def test_sizes_are_written_as_rocketmq_writes_them(size: int, text: str) -> None:
    assert human_size(size) == text


def test_rates_are_three_numbers_that_tools_can_split_and_parse() -> None:
    assert [float(word) for word in rate_text((0.0, 1 / 3, 123_456.0)).split(" ")] == [
        0.0,
        0.3333,
        123_456.0,
    ]


def test_times_are_counted_in_the_range_that_they_fall_into() -> None:
    text = distribution([0, 0, 1, 10, 11, 999, 1000, 1001, 99_999])
    counts = dict(word.rsplit(":", 1) for word in text.split(" "))
    assert {name: int(count) for name, count in counts.items() if count != "0"} == {
        "[<=0ms]": 2,
        "[0~10ms]": 2,
        "[10~50ms]": 1,
        "[500ms~1s]": 2,
        "[1~2s]": 1,
        "[10s~]": 1,
    }


def test_percentiles_of_sorted_times() -> None:
    times = list(range(1, 1001))
    assert (percentile(times, 0.99), percentile(times, 0.999)) == (991, 1000)
    assert percentile([7], 0.999) == 7
    assert percentile([], 0.99) == 0
