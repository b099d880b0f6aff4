"""SQL92 expressions: checked text in, a function over properties out.

    a > 5 AND region IN ('EU', 'US') AND note IS NOT NULL

The grammar is in `sql.lark`, what may stand where in `sql_tree.py`, how values compare in
`sql_values.py`, and how it all becomes a function in `sql_code.py`. The meaning is RocketMQ's in
every detail but one: text behind a complete expression is refused here and ignored there.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from firearrow.base.errors import ConfigError
from firearrow.filters.sql_code import evaluator_of, names_of
from firearrow.filters.sql_tree import (
    And,
    Node,
    Or,
    Refused,
    make_between,
    make_condition,
    make_constant,
    make_decimal,
    make_equal,
    make_integer,
    make_inverted,
    make_is_null,
    make_logic,
    make_member,
    make_negated,
    make_not_between,
    make_order,
    make_property,
    make_text,
    unquoted,
)
from firearrow.model.errors import SubscriptionParseFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lark import Lark, Token

    Parts = list[Any]  # nodes, and words between them

CHARS_MAX: Final = 8_192
SHOWN_CHARS: Final = 24  # of what is wrong, in an error

_MEANINGS: Final = {"STRING": "a 'text'", "LPAR": "(", "RPAR": ")", "COMMA": ","}


class SqlFilter:
    """A compiled expression.

    `evaluate` takes the values of the properties in `names`, None for those that a message does not
    have, and nothing else: whoever has many messages looks up only these. The more `parts` it has,
    the longer that takes.
    """

    __slots__ = ("evaluate", "expression", "names", "parts")

    def __init__(
        self, expression: str, names: tuple[str, ...], parts: int, evaluate: Callable[..., bool]
    ) -> None:
        self.expression = expression
        self.names = names
        self.parts = parts
        self.evaluate = evaluate

    def __repr__(self) -> str:
        return f"SqlFilter({self.expression!r})"

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted; an empty value is none at all."""
        get = properties.get
        return self.evaluate(*[get(name) or None for name in self.names])


def compile_sql(expression: str) -> SqlFilter:
    """Compile an expression; SubscriptionParseFailed says where it is wrong, and why."""
    tree = parse_sql(expression)
    return SqlFilter(expression, names_of(tree), tree.measure.nodes, evaluator_of(tree))


def parse_sql(expression: str) -> Node:
    """The checked tree of an expression."""
    if len(expression) > CHARS_MAX:
        raise SubscriptionParseFailed(
            f"the SQL92 expression has {len(expression)} characters; the limit is {CHARS_MAX}"
        )
    try:
        return _parsed(expression)
    except Refused as refusal:
        raise SubscriptionParseFailed(
            f"SQL92 expression, character {refusal.position + 1}: {refusal.why} "
            f"(at {_shown(expression, refusal.position)})"
        ) from None


def _parsed(expression: str) -> Node:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken  # noqa: PLC0415 - see _parser

    try:
        tree: Any = _parser().parse(expression)
    except UnexpectedToken as error:
        position = len(expression) if error.token.type == "$END" else error.token.start_pos
        raise Refused(position or 0, _expected(error.expected)) from None
    except UnexpectedCharacters as error:
        raise Refused(error.pos_in_stream or 0, "this means nothing in SQL92") from None
    assert isinstance(tree, Node)
    return tree


@cache
def _parser() -> Lark:
    """Made when the first expression comes: most brokers and clients never see one."""
    try:
        from lark import Lark  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "SQL92 expressions need the package lark: pip install 'firearrow[server]'"
        ) from error
    grammar = resources.files("firearrow.filters").joinpath("sql.lark").read_text("utf-8")
    # The nodes are made while the text is read: no tree of lark's ever exists, however deep. In
    # ASCII only, upper and lower case are pairs: elsewhere a dotless i is an I as well.
    return Lark(
        grammar, parser="lalr", lexer="basic", transformer=_Reader(), g_regex_flags=re.ASCII
    )


class _Reader:
    """What each rule of the grammar makes of its parts; words among them tell where they are."""

    def whole(self, parts: list[Node]) -> Node:
        return make_condition(0, parts[0])

    def either(self, parts: Parts) -> Node:
        left, word, right = parts
        return make_logic(word.start_pos, Or, left, right)

    def both(self, parts: Parts) -> Node:
        left, word, right = parts
        return make_logic(word.start_pos, And, left, right)

    def equal(self, parts: Parts) -> Node:
        left, word, right = parts
        return make_equal(word.start_pos, left, right)

    def unequal(self, parts: Parts) -> Node:
        left, word, right = parts
        return make_inverted(word.start_pos, make_equal(word.start_pos, left, right))

    def is_null(self, parts: Parts) -> Node:
        return make_is_null(parts[1].start_pos, parts[0])

    def is_not_null(self, parts: Parts) -> Node:
        position = parts[1].start_pos
        return make_inverted(position, make_is_null(position, parts[0]))

    def order(self, parts: Parts) -> Node:
        left, word, right = parts
        return make_order(word.start_pos, str(word), left, right)

    def text(self, parts: Parts) -> Node:
        node, word, search = parts
        return make_text(word.start_pos, word.upper(), node, unquoted(search), inverted=False)

    def not_text(self, parts: Parts) -> Node:
        node, _, word, search = parts
        return make_text(word.start_pos, word.upper(), node, unquoted(search), inverted=True)

    def between(self, parts: Parts) -> Node:
        value, word, low, _, high = parts
        return make_between(word.start_pos, value, low, high)

    def not_between(self, parts: Parts) -> Node:
        value, word, _, low, _, high = parts
        return make_not_between(word.start_pos, value, low, high)

    def member(self, parts: Parts) -> Node:
        node, word, *texts = parts
        values = frozenset(map(unquoted, texts))
        return make_member(word.start_pos, node, values, inverted=False)

    def not_member(self, parts: Parts) -> Node:
        node, word, _, *texts = parts
        values = frozenset(map(unquoted, texts))
        return make_member(word.start_pos, node, values, inverted=True)

    def negated(self, parts: Parts) -> Node:
        return make_negated(parts[0].start_pos, parts[1])

    def inverted(self, parts: Parts) -> Node:
        return make_inverted(parts[0].start_pos, parts[1])

    def string(self, parts: list[Token]) -> Node:
        return make_constant(_place(parts), unquoted(parts[0]))

    def decimal(self, parts: list[Token]) -> Node:
        return make_decimal(_place(parts), str(parts[0]))

    def integer(self, parts: list[Token]) -> Node:
        return make_integer(_place(parts), str(parts[0]))

    def true(self, parts: list[Token]) -> Node:
        return make_constant(_place(parts), value=True)

    def false(self, parts: list[Token]) -> Node:
        return make_constant(_place(parts), value=False)

    def null(self, parts: list[Token]) -> Node:
        return make_constant(_place(parts), value=None)

    def property(self, parts: list[Token]) -> Node:
        return make_property(_place(parts), str(parts[0]))


def _place(parts: list[Token]) -> int:
    return parts[0].start_pos or 0


def _expected(terminals: Collection[str]) -> str:
    if "$END" in terminals:
        return "expected AND, OR, a comparison or the end"
    if "NAME" in terminals:
        return "expected a property, a value, NOT or ("
    words = sorted({_MEANINGS.get(name, name) for name in terminals})
    return (
        f"expected {', '.join(words[:-1])} or {words[-1]}" if words[1:] else f"expected {words[0]}"
    )


def _shown(expression: str, position: int) -> str:
    rest = expression[position : position + SHOWN_CHARS]
    if not rest:
        return "the end"
    return repr(rest) + (" …" if len(expression) > position + SHOWN_CHARS else "")
