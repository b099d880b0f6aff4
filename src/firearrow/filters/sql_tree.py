"""The tree of an SQL92 expression, and the rules that it must obey before anybody evaluates it.

What RocketMQ refuses when a consumer subscribes is refused here, with the place and a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.filters.sql_values import INT_MAX, LONG_MAX, Long, Value

if TYPE_CHECKING:
    from collections.abc import Callable

DEPTH_MAX: Final = 64
NODES_MAX: Final = 2_048


class Refused(Exception):
    """An expression that cannot be used: where, counted in characters from 0, and why."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(why)
        self.position = position
        self.why = why


# --- nodes ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measure:
    """How deep and how large a tree is."""

    depth: int
    nodes: int


def measured(position: int, depth: int, nodes: int) -> Measure:
    """The measure of a new node, if there is room for it."""
    if nodes > NODES_MAX:
        raise Refused(position, f"it has more than {NODES_MAX} parts")
    if depth > DEPTH_MAX:
        raise Refused(position, f"it is nested more than {DEPTH_MAX} levels deep")
    return Measure(depth, nodes)


def measure(position: int, *children: Node) -> Measure:
    return measured(
        position,
        1 + max((child.measure.depth for child in children), default=0),
        1 + sum(child.measure.nodes for child in children),
    )


@dataclass(frozen=True, slots=True)
class Node:
    measure: Measure


@dataclass(frozen=True, slots=True)
class Property(Node):
    name: str


@dataclass(frozen=True, slots=True)
class Constant(Node):
    value: Value

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float) and not isinstance(self.value, bool)


@dataclass(frozen=True, slots=True)
class Negated(Node):
    """A minus sign. What it makes of anything but a number is missing."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Condition(Node):
    """Something that is true, false or unknown."""


@dataclass(frozen=True, slots=True)
class Present(Condition):
    """A property where a condition should be: unknown if missing, else false, whatever it says."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not(Condition):
    operand: Node


@dataclass(frozen=True, slots=True)
class And(Condition):
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or(Condition):
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Equal(Condition):
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Order(Condition):
    operator: str  # < <= > >=
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Member(Condition):
    operand: Property
    values: frozenset[str]
    inverted: bool


@dataclass(frozen=True, slots=True)
class Text(Condition):
    kind: str  # CONTAINS STARTSWITH ENDSWITH
    operand: Node
    search: str
    inverted: bool


def is_condition(node: Node) -> bool:
    """Whether a node can stand where something true or false is asked for."""
    return isinstance(node, Condition) or (
        isinstance(node, Constant) and (node.value is None or isinstance(node.value, bool))
    )


def number_of(node: Node) -> int | float | None:
    """The number that a node always is; None if it is something else."""
    if isinstance(node, Constant):
        return node.value if node.is_number else None  # type: ignore[return-value]
    if isinstance(node, Negated):
        value = number_of(node.operand)
        if value is None:
            return None
        return Long(-value) if isinstance(value, Long) else -value
    return None


# --- building -------------------------------------------------------------------------------
# Bottom up, as a parser recognises the parts; `position` is where a complaint points to.


def make_constant(position: int, value: Value) -> Constant:
    return Constant(measure(position), value)


def make_integer(position: int, text: str) -> Constant:
    digits = text.rstrip("lL")
    if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
        raise Refused(position, f"{text} is larger than {LONG_MAX}, the largest integer")
    value = int(digits)
    return make_constant(position, value if value <= INT_MAX else Long(value))


def make_decimal(position: int, text: str) -> Constant:
    value = float(text)
    if value == float("inf"):
        raise Refused(position, f"{text} is larger than a double can be")
    if value == 0.0:
        raise Refused(position, f"{text} is zero, which RocketMQ refuses as a decimal: write 0")
    return make_constant(position, value)


def make_property(position: int, name: str) -> Property:
    return Property(measure(position), name)


def make_condition(position: int, node: Node) -> Node:
    """A node where something true or false is asked for."""
    if is_condition(node):
        return node
    if isinstance(node, Property):
        return Present(measure(position, node), node)
    raise Refused(position, "a condition is expected here, something that is true or false")


def make_logic(position: int, kind: type[And | Or], left: Node, right: Node) -> Node:
    """AND or OR. A chain of the same kind is one node, however long it is."""
    operands: tuple[Node, ...] = ()
    depth = 0
    for node in (make_condition(position, left), make_condition(position, right)):
        same = isinstance(node, kind)
        operands += node.operands if isinstance(node, kind) else (node,)
        depth = max(depth, node.measure.depth - 1 if same else node.measure.depth)
    nodes = left.measure.nodes + right.measure.nodes
    return kind(measured(position, depth + 1, nodes + 1), operands)


def make_inverted(position: int, node: Node) -> Node:
    node = make_condition(position, node)
    return Not(measure(position, node), node)


def make_negated(position: int, node: Node) -> Node:
    return Negated(measure(position, node), node)


def make_equal(position: int, left: Node, right: Node) -> Node:
    for node in (left, right):
        if isinstance(node, Constant) and node.value is None:
            raise Refused(position, "nothing equals NULL: write IS NULL or IS NOT NULL")
    if (
        isinstance(left, Constant)
        and isinstance(left.value, bool)
        and isinstance(right, Constant)
        and not isinstance(right.value, bool)
    ):
        raise Refused(position, "TRUE and FALSE cannot be compared with a number or a text")
    return Equal(measure(position, left, right), left, right)


def make_is_null(position: int, left: Node) -> Node:
    right = make_constant(position, None)
    return Equal(measure(position, left, right), left, right)


def make_order(position: int, operator: str, left: Node, right: Node) -> Node:
    for node in (left, right):
        if isinstance(node, Constant) and not node.is_number:
            raise Refused(
                position, f"{operator} compares numbers; texts and truth values have = and <>"
            )
        if isinstance(node, Condition):
            raise Refused(position, f"{operator} compares numbers, not conditions")
    return Order(measure(position, left, right), operator, left, right)


def make_between(position: int, value: Node, low: Node, high: Node) -> Node:
    if isinstance(low, Constant) and isinstance(high, Constant):
        least, most = number_of(low), number_of(high)
        if least is not None and most is not None and least > most:
            raise Refused(position, f"BETWEEN {least} AND {most}: the first is larger")
    return make_logic(
        position,
        And,
        make_order(position, ">=", value, low),
        make_order(position, "<=", value, high),
    )


def make_not_between(position: int, value: Node, low: Node, high: Node) -> Node:
    return make_logic(
        position,
        Or,
        make_order(position, "<", value, low),
        make_order(position, ">", value, high),
    )


def make_member(position: int, node: Node, values: frozenset[str], *, inverted: bool) -> Node:
    if not isinstance(node, Property):
        raise Refused(position, "IN needs the name of a property on its left")
    return Member(measure(position, node), node, values, inverted)


def make_text(position: int, kind: str, node: Node, search: str, *, inverted: bool) -> Node:
    return Text(measure(position, node), kind, node, search, inverted)


def unquoted(text: str) -> str:
    """A text without its quotes; two quotes in it stand for one."""
    return text[1:-1].replace("''", "'")


def walk(node: Node, visit: Callable[[Node], None]) -> None:
    """Every node below and including this one, left to right."""
    visit(node)
    for name in ("operand", "left", "right"):
        child = getattr(node, name, None)
        if isinstance(child, Node):
            walk(child, visit)
    for child in getattr(node, "operands", ()):
        walk(child, visit)
