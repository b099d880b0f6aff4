from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from firearrow.base.histogram import Histogram
from firearrow.metrics.families import LINES_PER_PIECE, Family, number, one, pieces


def page(*families: Family, **common: str) -> str:
    return b"".join(pieces(families, common)).decode()


def test_every_series_has_the_common_labels_first() -> None:
    family = Family("up_total", "counter", "Ups.", [({"topic": "orders"}, 3)])
    assert page(family, cluster="c") == (
        '# HELP up_total Ups.\n# TYPE up_total counter\nup_total{cluster="c",topic="orders"} 3\n'
    )


@pytest.mark.parametrize("hostile", ['a"b', "back\\slash", "two\nlines", '\\"\n', "火箭"])
def test_label_values_survive_the_parser(hostile: str) -> None:
    family = Family("things", "gauge", f"Help {hostile}", [({"topic": hostile}, 1)])
    (parsed,) = text_string_to_metric_families(page(family))
    assert parsed.samples[0].labels == {"topic": hostile}


def test_buckets_of_a_histogram_add_up() -> None:
    histogram = Histogram((1, 5))
    for value in (0.5, 3, 4, 90):
        histogram.observe(value)
    (parsed,) = text_string_to_metric_families(
        page(Family("took", "histogram", "Took.", [({}, histogram)]), node="n")
    )
    counts = {s.labels["le"]: s.value for s in parsed.samples if s.name == "took_bucket"}
    assert counts == {"1.0": 1, "5.0": 3, "+Inf": 4}
    assert {s.name: s.value for s in parsed.samples if "le" not in s.labels} == {
        "took_sum": 97.5,
        "took_count": 4,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (0.25, "0.25"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert number(value) == text


def test_a_large_page_comes_in_pieces() -> None:
    many = Family("n", "gauge", "N.", [({"i": str(i)}, i) for i in range(3 * LINES_PER_PIECE)])
    found = list(pieces([many, Family("m", "gauge", "M.", one(1))], {}))
    assert len(found) == 4
    families = list(text_string_to_metric_families(b"".join(found).decode()))
    assert [len(family.samples) for family in families] == [3 * LINES_PER_PIECE, 1]
