from __future__ import annotations

import subprocess
import sys

import pytest

from firearrow.filters.sql import CHARS_MAX, compile_sql
from firearrow.filters.sql_tree import DEPTH_MAX, NODES_MAX
from firearrow.model.errors import SubscriptionParseFailed


def matches(expression: str, **properties: str) -> bool:
    return compile_sql(expression).matches(properties)


@pytest.mark.parametrize(
    ("expression", "where", "why"),
    [
        ("", 1, "expected a property"),
        ("a =", 4, "expected a property"),
        ("a = 1 b", 7, "expected AND, OR"),
        ("a IN ('x' 'y')", 11, r"expected \) or ,"),
        ("a IN (1)", 7, "expected a 'text'"),
        ("a != 1", 3, "means nothing"),
        ("a = 'x", 5, "means nothing"),
        ("a = 0.0", 5, "zero"),
        ("a = 1e999", 5, "larger"),
        ("a = 9223372036854775808", 5, "larger"),
        ("a BETWEEN 3 AND 1", 3, "first is larger"),
        ("a BETWEEN 1.5 AND 1", 3, "first is larger"),
        ("a BETWEEN NULL AND 1", 3, "compares numbers"),
        ("a < 'x'", 3, "compares numbers"),
        ("a > 1 > 2", 7, "not conditions"),
        ("NOT a > 1", 7, "not conditions"),
        ("a = NULL", 3, "IS NULL"),
        ("TRUE = 1", 6, "cannot be compared"),
        ("'x' OR TRUE", 5, "condition is expected"),
        ("1.5", 1, "condition is expected"),
        ("-a", 1, "condition is expected"),
        ("'x' IN ('x')", 5, "IN needs the name"),
        ("NOT a IN ('x')", 7, "IN needs the name"),
        ("a IS TRUE", 6, "NOT or NULL"),
    ],
)
def test_refusal_says_where_and_why(expression: str, where: int, why: str) -> None:
    with pytest.raises(SubscriptionParseFailed, match=rf"character {where}: .*{why}"):
        compile_sql(expression)


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        # Text that meets an integer: a sign and digits of any script, no more than 32 bits.
        ("a = 5", "+5", True),
        ("a = 5", "\N{ARABIC-INDIC DIGIT FIVE}", True),
        ("a = 5", "\N{MATHEMATICAL BOLD DIGIT FIVE}", False),
        ("a = 5", " 5", False),
        ("a = 5", "5_0", False),
        ("a < 5", "-2147483648", True),
        ("a < 5", "-2147483649", False),
        ("a < 3000000000", "2999999999", True),
        ("a = 5", "0" * 5000 + "5", True),
        ("a > 5", "9" * 5000, False),
        ("a = 5", "-", False),
        # Text that meets a decimal: everything that Java reads as a double.
        ("a = 5.0", " 5 ", True),
        ("a = 5.0", "5d", True),
        ("a = 5.0", "0x1.4p2", True),
        ("a > 5.0", "Infinity", True),
        ("a < 5.0", "-Infinity", True),
        ("a > 5.0", "NaN", True),
        ("a = 5.0", "NaN", False),
        ("a > 5.0", "inf", False),
        ("a > 5.0", "1_0", False),
        ("a > 5.0", "0x9p99999", True),
        # Truth values: everything but "true" is false, and only on the left of one.
        ("a = TRUE", "tRuE", True),
        ("a = FALSE", "whatever", True),
        ("TRUE = a", "true", False),
        ("TRUE = a OR a = 'true'", "true", False),
        # Words and comments.
        ("a='5'/**/AND/* * */a = 5", "5", True),
        ("a = --5", "5", True),
        ("a = 5or FALSE", "5", True),
        ("a = 5.", "5", True),
    ],
)
def test_value_is_read_as_java_reads_it(expression: str, value: str, expected: bool) -> None:
    assert matches(expression, a=value) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a > b", True),  # 10 > 9.5: two properties compare as doubles
        ("b > a", False),
        ("a > t", False),  # no number
        ("zero > minus", True),  # Java's -0.0 is below 0.0
        ("nan >= nan", True),
        ("a = b", False),
        ("missing = missing", True),
        ("a <> missing", True),
        ("missing <> a", False),
        ("NOT (missing = a)", False),
        ("- a IS NULL", True),
        ("- (a = 10) IS NULL", True),
        ("- (t = 10) IS NULL", False),  # what is negated is looked at all the same
        ("(a = 10) CONTAINS 'x'", False),
        ("NOT ((a = 10) CONTAINS 'x')", True),
        ("(a = 10) = (b > 9)", False),  # 9.5 is no integer, which ends everything
        ("(a = 10) = (b > 9.0)", True),
        ("a NOT BETWEEN 30 AND 20", True),
        ("a BETWEEN -5 AND -50", False),
        ("a = -2147483648", False),
        ("a IN ('9', '10')", True),
        ("(a) IN ('10')", True),
        ("NOT a", True),  # a property that is there is false
        ("NOT missing", False),
    ],
)
def test_odd_expression_means_what_it_means_in_java(expression: str, expected: bool) -> None:
    values = {"a": "10", "b": "9.5", "t": "x", "zero": "0.0", "minus": "-0.0", "nan": "NaN"}
    assert matches(expression, **values) is expected


def test_what_cannot_be_read_ends_everything_unless_it_is_not_looked_at() -> None:
    # Apache throws at "x = 1", and the message does not match, whatever else is said.
    assert not matches("x = 1 OR a = '1'", x="text", a="1")
    assert matches("a = '1' OR x = 1", x="text", a="1")
    assert not matches("(missing = 1 AND x = 1) OR a = '1'", x="text", a="1")
    assert matches("(a = '2' AND x = 1) OR a = '1'", x="text", a="1")
    assert not matches("NOT (missing = 1 OR x = 1) OR a = '1'", x="text", a="1")


def test_only_named_properties_are_looked_up() -> None:
    wanted = compile_sql("b > 1 AND (a = 'x' OR b < 9) AND c IS NULL")
    assert wanted.names == ("b", "a", "c")
    assert wanted.evaluate("2", "y", None)


def test_too_large_expressions_are_refused_by_name_of_the_limit() -> None:
    for expression, limit in (
        ("a = '" + "x" * CHARS_MAX + "'", CHARS_MAX),
        ("NOT " * DEPTH_MAX + "a", DEPTH_MAX),
        ("- " * 4000 + "1 = a", DEPTH_MAX),
        ("a=1OR " * (NODES_MAX // 3) + "a=1", NODES_MAX),
    ):
        with pytest.raises(SubscriptionParseFailed, match=str(limit)):
            compile_sql(expression)


def test_large_expressions_within_the_limits_work() -> None:
    assert matches("(" * 4000 + "a = 1" + ")" * 4000, a="1")
    assert matches("NOT " * (DEPTH_MAX - 3) + "(a = 1)", a="2")
    terms = " OR ".join(f"a = {number}" for number in range(400))
    assert matches(terms, a="399")
    assert not matches(terms, a="400")
    texts = ",".join(f"'{number}'" for number in range(1_000))
    assert matches(f"a IN ({texts})", a="999")


def test_package_is_not_loaded_before_it_is_needed() -> None:
    program = (
        "import sys; from firearrow.filters.expression import filter_for;"
        "assert 'lark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
