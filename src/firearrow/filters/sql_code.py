"""SQL92 trees to Python code: one function per expression, called once per message.

The code is built as a syntax tree of ours from a tree that was checked; no text of a user is ever
read as Python, it only appears as constants. The function takes the values of the properties that
the expression names, in the order of `names_of`, and says whether the message matches.

There are four ways to ask for a condition, since most places want less than its three values:

    VALUE   true, false or unknown (None), exactly
    TRUE    whether it is true
    FALSE   whether it is false
    MATCH   whether it is true, where nothing else can make the whole expression true any more

An operand that cannot be read as a number ends everything (`Mismatch`), so TRUE and FALSE skip an
operand only where RocketMQ skips it too, or where it cannot end anything. Under MATCH the end of
everything and "not true" are the same.
"""

from __future__ import annotations

import ast
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from firearrow.filters.sql_tree import (
    And,
    Constant,
    Equal,
    Member,
    Negated,
    Node,
    Not,
    Or,
    Order,
    Present,
    Property,
    Text,
    number_of,
    walk,
)
from firearrow.filters.sql_values import (
    Long,
    Mismatch,
    double_beside,
    equal,
    int32,
    int64,
    order,
    truth,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Evaluate = Callable[..., bool]


class Ask(Enum):
    VALUE = auto()
    TRUE = auto()
    FALSE = auto()
    MATCH = auto()


_TEMPLATE: Final = """
def matches():
    try:
        return None
    except Mismatch:
        return False
"""
_OPERATORS: Final[dict[str, type[ast.cmpop]]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "=": ast.Eq,
    "<>": ast.NotEq,
}
_OPPOSITES: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>"}
_HELPERS: Final[dict[str, Any]] = {
    "Mismatch": Mismatch,
    "int32": int32,
    "int64": int64,
    "double": double_beside,
    "truth": truth,
    "equal": equal,
    "order": order,
    "nothing": lambda _: None,
    "isinstance": isinstance,
    "str": str,
    "__builtins__": {},
}


def names_of(tree: Node) -> tuple[str, ...]:
    """The properties that an expression looks at, each once."""
    names: dict[str, None] = {}

    def note(node: Node) -> None:
        if isinstance(node, Property):
            names[node.name] = None

    walk(tree, note)
    return tuple(names)


def evaluator_of(tree: Node) -> Evaluate:
    """A function of the values of `names_of(tree)` that says whether a message matches."""
    names = names_of(tree)
    coder = _Coder(names)
    module = ast.parse(_TEMPLATE)
    (function,) = module.body
    assert isinstance(function, ast.FunctionDef)
    function.args.args = [ast.arg(arg=f"v{number}") for number in range(len(names))]
    (attempt,) = function.body
    assert isinstance(attempt, ast.Try)
    attempt.body = [ast.Return(coder.code(tree, Ask.MATCH))]
    ast.fix_missing_locations(module)
    namespace = _HELPERS | coder.constants
    exec(compile(module, "<sql92>", "exec"), namespace)  # our tree, see the top of this file
    evaluate: Evaluate = namespace["matches"]
    return evaluate


# --- small pieces of code -------------------------------------------------------------------


def _true() -> ast.expr:
    return ast.Constant(value=True)


def _false() -> ast.expr:
    return ast.Constant(value=False)


def _unknown() -> ast.expr:
    return ast.Constant(value=None)


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _call(function: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(_name(function), list(arguments), [])


def _compare(left: ast.expr, operator: type[ast.cmpop], right: ast.expr) -> ast.expr:
    return ast.Compare(left, [operator()], [right])


def _is(value: ast.expr, what: bool | None) -> ast.expr:  # noqa: FBT001
    if isinstance(value, ast.Constant):
        return ast.Constant(value.value is what)
    return _compare(value, ast.Is, ast.Constant(what))


def _is_not_none(value: ast.expr) -> ast.expr:
    if isinstance(value, ast.Constant):
        return ast.Constant(value.value is not None)
    return _compare(value, ast.IsNot, _unknown())


def _all(*values: ast.expr) -> ast.expr:
    return ast.BoolOp(ast.And(), list(values)) if len(values) > 1 else values[0]


def _any(*values: ast.expr) -> ast.expr:
    return ast.BoolOp(ast.Or(), list(values)) if len(values) > 1 else values[0]


def _if(test: ast.expr, then: ast.expr, otherwise: ast.expr) -> ast.expr:
    return ast.IfExp(test, then, otherwise)


def _not(value: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), value)


# --- what an operand can do -----------------------------------------------------------------


def can_end_everything(node: Node) -> bool:
    """Whether evaluating a node may raise Mismatch; True also when in doubt."""
    match node:
        case Not() | Negated() | Text():
            return can_end_everything(node.operand)
        case And() | Or():
            return any(map(can_end_everything, node.operands))
        case Equal(_, left, right):
            harmless = isinstance(right, Property) or (
                isinstance(right, Constant) and not right.is_number
            )
            if isinstance(right, Constant) and right.value is None:
                return can_end_everything(left)
            return not (isinstance(left, Property) and harmless)
        case Order():
            return True
    return False


def can_be_unknown(node: Node) -> bool:
    """Whether a condition may be neither true nor false; True also when in doubt."""
    match node:
        case Text():
            return False
        case Constant(_, value):
            return value is None
        case Equal(_, left, right):
            return not (
                (isinstance(right, Constant) and right.value is None)
                or (isinstance(left, Constant) and left.value is not None)
            )
        case Not():
            return can_be_unknown(node.operand)
        case And() | Or():
            return any(map(can_be_unknown, node.operands))
    return True


class _Coder:
    """Writes the code of one expression."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._arguments = {name: f"v{number}" for number, name in enumerate(names)}
        self._temporaries = 0
        self.constants: dict[str, object] = {}  # those that code cannot spell

    def _temporary(self, value: ast.expr) -> tuple[ast.expr, ast.expr]:
        """An expression that keeps its value under a name, and that name."""
        name = f"t{self._temporaries}"
        self._temporaries += 1
        return ast.NamedExpr(ast.Name(name, ast.Store()), value), _name(name)

    def _constant(self, value: object) -> ast.expr:
        if not isinstance(value, Long | frozenset):
            return ast.Constant(value)  # type: ignore[arg-type]
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return _name(name)

    # --- values -----------------------------------------------------------------------------

    def value(self, node: Node) -> ast.expr:
        """The value of any node: text, number, truth value or None."""
        match node:
            case Property():
                return _name(self._arguments[node.name])
            case Constant():
                return self._constant(node.value)
            case Negated():
                number = number_of(node)
                if number is not None:
                    return self._constant(number)
                if can_end_everything(node.operand):
                    return _call("nothing", self.value(node.operand))
                return _unknown()
        return self.code(node, Ask.VALUE)

    # --- conditions -------------------------------------------------------------------------

    def code(self, node: Node, ask: Ask) -> ast.expr:  # noqa: PLR0911 - one per kind
        match node:
            case And():
                return self._and(node, ask)
            case Or():
                return self._or(node, ask)
            case Not():
                return self._inverted(node, ask)
            case Equal():
                return self._equal(node, ask)
            case Order():
                return self._order(node, ask)
            case Member():
                return self._member(node, ask)
            case Text():
                return self._text(node, ask)
            case Present():
                value = self.value(node.operand)
                if ask is Ask.VALUE:
                    return _if(_is(value, None), _unknown(), _false())
                return _is_not_none(value) if ask is Ask.FALSE else _false()
        assert isinstance(node, Constant)
        if ask is Ask.VALUE:
            return ast.Constant(node.value)
        return ast.Constant(node.value is (ask is not Ask.FALSE))

    def _inverted(self, node: Not, ask: Ask) -> ast.expr:
        if ask is not Ask.VALUE:
            return self.code(node.operand, Ask.TRUE if ask is Ask.FALSE else Ask.FALSE)
        value = self.code(node.operand, Ask.VALUE)
        if not can_be_unknown(node.operand):
            return _not(value)
        kept, name = self._temporary(value)
        return _if(_is(kept, None), _unknown(), _not(name))

    def _and(self, node: And, ask: Ask) -> ast.expr:
        if ask is Ask.FALSE:
            return _any(*(self.code(operand, Ask.FALSE) for operand in node.operands))
        if ask is Ask.MATCH or (ask is Ask.TRUE and _may_stop_early(node.operands)):
            return _all(*(self.code(operand, ask) for operand in node.operands))
        ended, unknown = self._chain(node.operands, ends_with=False)
        if ask is Ask.TRUE:
            return _all(_not(ended), _not(unknown))
        return _if(ended, _false(), _if(unknown, _unknown(), _true()))

    def _or(self, node: Or, ask: Ask) -> ast.expr:
        if ask is Ask.MATCH:
            *before, last = node.operands
            return _any(
                *(self.code(operand, Ask.TRUE) for operand in before), self.code(last, Ask.MATCH)
            )
        if ask is Ask.TRUE:
            return _any(*(self.code(operand, Ask.TRUE) for operand in node.operands))
        if ask is Ask.FALSE and _may_stop_early(node.operands):
            return _all(*(self.code(operand, Ask.FALSE) for operand in node.operands))
        ended, unknown = self._chain(node.operands, ends_with=True)
        if ask is Ask.FALSE:
            return _all(_not(ended), _not(unknown))
        return _if(ended, _true(), _if(unknown, _unknown(), _false()))

    def _chain(self, operands: tuple[Node, ...], *, ends_with: bool) -> tuple[ast.expr, ast.expr]:
        """Whether one operand decides it, and if none does, whether one is unknown."""
        kept = [self._temporary(self.code(operand, Ask.VALUE)) for operand in operands]
        return (
            _any(*(_is(value, ends_with) for value, _ in kept)),
            _any(*(_is(name, None) for _, name in kept)),
        )

    def _equal(self, node: Equal, ask: Ask) -> ast.expr:  # noqa: PLR0911 - one per form
        left, right = node.left, node.right
        if isinstance(right, Constant) and right.value is None:
            value = self.value(left)
            return _is_not_none(value) if ask is Ask.FALSE else _is(value, None)
        if isinstance(left, Property):
            if isinstance(right, Property) or isinstance(getattr(right, "value", None), str):
                return self._same(left, right, ask)
            read = self._reading(left, right)
            if read is not None:
                return self._unless_missing(left, "=", read, right, ask)
        if isinstance(right, Property) and isinstance(left, Constant):
            if isinstance(left.value, str):
                operator = ast.NotEq if ask is Ask.FALSE else ast.Eq
                return _compare(self.value(right), operator, self.value(left))
            read = self._reading(right, left) if left.is_number else None
            if read is not None:  # a missing property on the right is no secret: false
                value = self.value(right)
                if ask is Ask.FALSE:
                    return _any(_is(value, None), _compare(read, ast.NotEq, self.value(left)))
                return _all(_is_not_none(value), _compare(read, ast.Eq, self.value(left)))
        found = _call("equal", self.value(left), self.value(right))
        return found if ask is Ask.VALUE else _is(found, ask is not Ask.FALSE)

    def _same(self, left: Property, right: Node, ask: Ask) -> ast.expr:
        """Two texts."""
        first, second = self.value(left), self.value(right)
        if ask is Ask.FALSE:
            return _all(_is_not_none(first), _compare(first, ast.NotEq, second))
        same = _compare(first, ast.Eq, second)
        if ask is not Ask.VALUE:
            return same
        missing = _is(first, None)
        if isinstance(right, Property):
            missing = _all(missing, _is_not_none(second))
        return _if(missing, _unknown(), same)

    def _reading(self, node: Property, beside: Node) -> ast.expr | None:
        """Code that reads a property as the kind of the constant beside it."""
        number = number_of(beside)
        if isinstance(number, float):
            return _call("double", self.value(node))
        if number is not None:
            return _call("int64" if isinstance(number, Long) else "int32", self.value(node))
        if isinstance(beside, Constant) and isinstance(beside.value, bool):
            return _call("truth", self.value(node))
        return None

    def _unless_missing(
        self, node: Property, operator: str, read: ast.expr, beside: Node, ask: Ask
    ) -> ast.expr:
        """A comparison that is unknown if the property is missing."""
        if ask is Ask.FALSE:
            operator = _OPPOSITES[operator]
        found = _compare(read, _OPERATORS[operator], self.value(beside))
        if ask is Ask.VALUE:
            return _if(_is(self.value(node), None), _unknown(), found)
        return _all(_is_not_none(self.value(node)), found)

    def _order(self, node: Order, ask: Ask) -> ast.expr:
        if isinstance(node.left, Property) and number_of(node.right) is not None:
            read = self._reading(node.left, node.right)
            assert read is not None
            return self._unless_missing(node.left, node.operator, read, node.right, ask)
        if isinstance(node.right, Property) and number_of(node.left) is not None:
            read = self._reading(node.right, node.left)
            assert read is not None
            mirrored = node.operator.translate(str.maketrans("<>", "><"))
            return self._unless_missing(node.right, mirrored, read, node.left, ask)
        kept, name = self._temporary(_call("order", self.value(node.left), self.value(node.right)))
        operator = _OPPOSITES[node.operator] if ask is Ask.FALSE else node.operator
        found = _compare(name, _OPERATORS[operator], ast.Constant(0))
        if ask is Ask.VALUE:
            return _if(_is(kept, None), _unknown(), found)
        return _all(_is_not_none(kept), found)

    def _member(self, node: Member, ask: Ask) -> ast.expr:
        value = self.value(node.operand)
        inverted = node.inverted is not (ask is Ask.FALSE)
        operator = ast.NotIn if inverted else ast.In
        found = _compare(value, operator, self._constant(node.values))
        if ask is Ask.VALUE:
            return _if(_is(value, None), _unknown(), found)
        return _all(_is_not_none(value), found) if inverted else found

    def _text(self, node: Text, ask: Ask) -> ast.expr:
        """True or false, never unknown: false without a text on either side, even if inverted."""
        if not node.search:
            return ast.Constant(ask is Ask.FALSE)
        if isinstance(node.operand, Property):
            value = self.value(node.operand)
            is_text = _is_not_none(value)
        else:
            kept, value = self._temporary(self.value(node.operand))
            is_text = _call("isinstance", kept, _name("str"))
        search = ast.Constant(node.search)
        if node.kind == "CONTAINS":
            found = _compare(search, ast.NotIn if node.inverted else ast.In, value)
        else:
            method = ast.Attribute(value, node.kind.lower(), ast.Load())
            found = ast.Call(method, [search], [])
            if node.inverted:
                found = _not(found)
        found = _all(is_text, found)
        return _not(found) if ask is Ask.FALSE else found


def _may_stop_early(operands: tuple[Node, ...]) -> bool:
    """Whether an unknown operand may hide those behind it: none of them can end everything."""
    unknown = False
    for operand in operands:
        if unknown and can_end_everything(operand):
            return False
        unknown = unknown or can_be_unknown(operand)
    return True
