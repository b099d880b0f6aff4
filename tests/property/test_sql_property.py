"""SQL92 against a naive reading of the same rules, and against text that means it ill."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from firearrow.filters import sql_tree as tree
from firearrow.filters.sql import compile_sql, parse_sql
from firearrow.filters.sql_values import Long
from firearrow.model.errors import SubscriptionParseFailed

# --- the oracle: every node by itself, three values, exceptions as Java throws them -----------


class Thrown(Exception):
    pass


def number(text: str, like: Any) -> Any:
    try:
        if isinstance(like, float):
            return float(text)
        value = int(text)
    except ValueError:
        raise Thrown from None
    bits = 63 if isinstance(like, Long) else 31
    if not -(1 << bits) <= value < 1 << bits:
        raise Thrown
    return value


def compared(left: Any, right: Any) -> int:
    if isinstance(left, bool):
        if isinstance(right, str):
            raise Thrown
        return left - right if isinstance(right, bool) else -1
    if isinstance(right, bool):
        return (left.lower() == "true") - right if isinstance(left, str) else -1
    if isinstance(left, str) and not isinstance(right, str):
        left = number(left, right)
    elif isinstance(right, str) and not isinstance(left, str):
        right = number(right, left)
    return bool(left > right) - bool(left < right)


def value_of(node: Any, properties: dict[str, str]) -> Any:  # noqa: PLR0911, PLR0912
    def get(other: Any) -> Any:
        return value_of(other, properties)

    match node:
        case tree.Constant():
            return node.value
        case tree.Property():
            return properties.get(node.name)
        case tree.Negated():
            value = get(node.operand)
            if value is None or isinstance(value, str | bool):
                return None
            return Long(-value) if isinstance(value, Long) else -value
        case tree.Present():
            return None if get(node.operand) is None else False
        case tree.Not():
            value = get(node.operand)
            return None if value is None else not value
        case tree.And() | tree.Or():
            decides = isinstance(node, tree.Or)
            values = []
            for operand in node.operands:
                values.append(get(operand))
                if values[-1] is decides:
                    return decides
            return None if None in values else not decides
        case tree.Equal():
            left, right = get(node.left), get(node.right)
            if left is None:
                return True if right is None else None
            return right is not None and compared(left, right) == 0
        case tree.Order():
            left, right = get(node.left), get(node.right)
            if left is None or right is None:
                return None
            if isinstance(left, str) and isinstance(right, str):
                left, right = number(left, 0.0), number(right, 0.0)
            sign = compared(left, right)
            return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[node.operator]
        case tree.Member():
            value = get(node.operand)
            return None if value is None else (value in node.values) is not node.inverted
        case tree.Text():
            value = get(node.operand) if node.search else None
            if not isinstance(value, str):
                return False
            found = {
                "CONTAINS": node.search in value,
                "STARTSWITH": value.startswith(node.search),
                "ENDSWITH": value.endswith(node.search),
            }
            return found[node.kind] is not node.inverted
    raise AssertionError(node)


def expected(node: Any, properties: dict[str, str]) -> bool:
    try:
        return value_of(node, properties) is True
    except Thrown:
        return False


# --- expressions ------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "TAGS"])
TEXTS = st.sampled_from(["'x'", "''", "'true'", "'5'", "'it''s'", "'中'"])
NUMBERS = st.sampled_from(["0", "1", "5", "5L", "2147483648", "1.5", "5.0", "1e3", ".5"])
LEAVES = NAMES | NAMES | TEXTS | NUMBERS | st.sampled_from(["TRUE", "false", "NULL"])
VALUES = st.sampled_from(
    ["x", "true", "FALSE", "5", "-5", "1.5", "5.0", "2147483648", "text", "it's", "中", "0"]
)
PROPERTIES = st.dictionaries(NAMES, VALUES)


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    text_operators = st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"])
    inverted = st.sampled_from(["", "NOT "])
    return (
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner)
        | st.builds("{} {} {}".format, inner, operators, inner)
        | st.builds("{} {} {}".format, NAMES, operators, NUMBERS)
        | st.builds("NOT ({})".format, inner)
        | st.builds("NOT {}".format, inner)
        | st.builds("-{}".format, inner)
        | st.builds("{} IS {}NULL".format, inner, inverted)
        | st.builds("{} {}BETWEEN {} AND {}".format, inner, inverted, NUMBERS, NUMBERS)
        | st.builds("{} {}IN ({}, {})".format, NAMES, inverted, TEXTS, TEXTS)
        | st.builds("{} {}{} {}".format, inner, inverted, text_operators, TEXTS)
    )


EXPRESSIONS = st.recursive(LEAVES, larger, max_leaves=12)


@given(EXPRESSIONS, st.lists(PROPERTIES, min_size=1, max_size=6))
@settings(max_examples=600)
@example("(a = 5 AND b = 5) OR c = 'x'", [{"a": "text", "c": "x"}, {"b": "text", "c": "x"}])
@example("NOT (a = 5 OR b = 5) = TRUE", [{}, {"a": "4", "b": "x"}])
def test_compiled_expression_agrees_with_the_oracle(
    expression: str, messages: list[dict[str, str]]
) -> None:
    with suppress(SubscriptionParseFailed):
        node = parse_sql(expression)
        wanted = compile_sql(expression)
        for properties in messages:
            assert wanted.matches(properties) is expected(node, properties)


WORDS = "AND OR NOT IN IS NULL BETWEEN TRUE CONTAINS a b_$ 'x' ' ( ) , = <> <= - -- /* */ + 1 0"
OTHERS = ["1.5", "1e9", ".5", "5L", "\n", "\t", "\x00", "中", "''", ";", "!", "#", "9" * 20]
PIECES = st.sampled_from([*WORDS.split(), *OTHERS])


@given(st.lists(PIECES, max_size=40).map(" ".join) | st.lists(PIECES, max_size=40).map("".join))
@settings(max_examples=400)
def test_any_text_is_compiled_or_refused_with_our_error(text: str) -> None:
    with suppress(SubscriptionParseFailed):
        assert compile_sql(text).matches({"a": "1", "b_$": "x"}) in {True, False}


@given(st.text(max_size=200))
def test_any_characters_are_compiled_or_refused_with_our_error(text: str) -> None:
    with suppress(SubscriptionParseFailed):
        compile_sql(text)


@given(
    st.sampled_from(["NOT ", "(", "- ", "+", "a = (", "TRUE = NOT (", "a AND (b OR ("]),
    st.integers(1, 4000),
)
@settings(max_examples=40, deadline=None)
def test_hostile_nesting_is_compiled_or_refused_with_our_error(piece: str, times: int) -> None:
    for text in (piece * times, piece * times + "a" + ")" * (piece * times).count("(")):
        with suppress(SubscriptionParseFailed):
            compile_sql(text)
