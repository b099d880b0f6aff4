from __future__ import annotations

from firearrow.base.histogram import Histogram


def test_a_value_belongs_to_the_first_bound_that_it_does_not_exceed() -> None:
    histogram = Histogram((1, 10, 100))
    for value in (0, 1, 2, 10, 11, 1_000):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1, 1]
    assert histogram.count == 6
    assert histogram.total == 1_024


def test_many_at_once_count_as_many() -> None:
    histogram = Histogram((1,))
    histogram.observe(3, times=5)
    assert histogram.counts == [0, 5]
    assert histogram.total == 15
