"""SQL92 expressions by the thousand, and what Apache's own classes make of each.

Expressions are grown from the grammar, a third of them damaged afterwards; messages have every kind
of text that may look like a number, and many that do not. One seed, one set of both.

``python -m tests.interop.sql_expressions`` writes a sample of them with Apache's answers to
`tests/conformance/data/sql92-grown.json`.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from firearrow.filters.sql import compile_sql
from firearrow.model.errors import SubscriptionParseFailed

from .apache import java_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.filters.sql import SqlFilter

SAMPLE: Final = Path(__file__).parents[1] / "conformance" / "data" / "sql92-grown.json"
SAMPLE_SEED: Final = 20261118
JAVA_TIMEOUT_S: Final = 120.0


def _words(text: str) -> list[str]:
    return text.split()


# Often, and now and then.
NAMES: Final = (_words("a b c d TAGS missing"), _words("A KEYS _u $p x9 is_ inx trueish a.b 中"))
INTEGERS: Final = (
    _words("0 1 5 10 2147483647 2147483648 9223372036854775807 5L"),
    _words("0L 0l 1l 00 007 9223372036854775808 99999999999999999999 0x10 1_0 2147483648L"),
)
DECIMALS: Final = (
    _words("1.5 5.0 .5 5. 1e3 1.e3 .5e1 1.5e-3 5.0e+0"),
    _words("0.0 0. 0e1 1e400 1e-400 1.5f 1.5d 4.9e-324 1.7976931348623157e308 1e . 00.5"),
)
TEXTS: Final = (
    ["'x'", "''", "'true'", "'5'", "'it''s'", "'中'", "'a b'", "'%'", "'1.5'", "'X'"],
    ["' '", "'''x'''", "'\n'", "'--'", "'/*'", "'\"'", "'😀'", "'\\'", "'TRUE'", "'null'"],
)
VALUES: Final = (
    _words("x true TRUE false 5 -5 +5 05 1.5 5.0 5. 0 10 1 text it's abc 2147483648 0.0 1e3"),
    [
        *_words("tRuE -2147483648 -2147483649 9223372036854775807 9223372036854775808 -0 -0.0"),
        *_words("NaN -NaN Infinity -Infinity +Infinity inf 5f 5d 5L 0x10 0x1p3 % _ X null NULL"),
        *_words("1e400 4.9e-324 1E3 xx 1_0 5e --5 +-5 + - 中 😀"),
        *("\N{ARABIC-INDIC DIGIT FIVE}", "\N{FULLWIDTH DIGIT FIVE}"),
        *(" 5", "5 ", "\t5", "a b", " ", "\x005", "5\x00"),
    ],
)
JUNK: Final = (
    *_words("AND OR NOT IN IS NULL BETWEEN LIKE ESCAPE TRUE CONTAINS XPATH ( ) , = <> < != =="),
    *_words("* / % || && ; # `x` ' -- /* */ @ a.b ? :p [ { \\ ~ ^ $ _ 0x1F 017 1..2"),
    *('"x"', "--\n", "/* c */", "--c\n", "\t", "\n", "\r", "\f", "\x0b", "\xa0"),
    *("中", "é", "é1", "İ", "\N{LATIN SMALL LETTER DOTLESS I}"),
    *("\N{KELVIN SIGN}", "\N{LATIN SMALL LETTER LONG S}"),
)
OPERATORS: Final = ("=", "<>", "<", "<=", ">", ">=")
TEXT_OPERATORS: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")


class Grower:
    """Grows expressions and messages; `depth` is how much may still stand within."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._one = self._random.choice

    def _chance(self, of_hundred: int) -> bool:
        return self._random.randrange(100) < of_hundred

    def _pick(self, pools: tuple[Sequence[str], Sequence[str]]) -> str:
        return self._one(pools[self._chance(15)])

    def message(self) -> dict[str, str]:
        names = [name for name in (*NAMES[0], *NAMES[1]) if name != "missing"]
        return {name: self._pick(VALUES) for name in names if self._chance(60)}

    def expression(self) -> str:
        grown = self._condition(self._one([0, 0, 1, 1, 2, 3]))
        return self._damaged(grown) if self._chance(33) else grown

    # --- the grammar ----------------------------------------------------------------------------

    def _word(self, word: str) -> str:
        if self._chance(80):
            return word
        return "".join(self._one([letter, letter.lower()]) for letter in word)

    def _maybe_not(self) -> str:
        return self._word("NOT") + " " if self._chance(30) else ""

    def _number(self) -> str:
        sign = self._one(["-", "- ", "+", "--", "-+"]) if self._chance(20) else ""
        return sign + self._pick(INTEGERS if self._chance(60) else DECIMALS)

    def _condition(self, depth: int) -> str:
        kind = self._random.randrange(100)
        if depth <= 0 or kind < 35:
            return self._comparison(depth)
        left, right = self._condition(depth - 1), self._condition(depth - 1)
        if kind < 75:
            return f"{left} {self._word(self._one(['AND', 'OR']))} {right}"
        if kind < 85:
            return f"{self._word('NOT')} ({left})"
        other = self._one(["TRUE", "FALSE", self._pick(NAMES), self._number(), f"({right})"])
        return f"({left})" if kind < 93 else f"({left}) {self._one(OPERATORS)} {other}"

    def _comparison(self, depth: int) -> str:
        name, text, number = self._pick(NAMES), self._pick(TEXTS), self._number()
        sort, truth = self._one(OPERATORS), self._word(self._one(["TRUE", "FALSE"]))
        grown = self._operand(depth)
        inverted, null = self._maybe_not(), self._word("NULL")
        between = f"{inverted}{self._word('BETWEEN')}"
        looks = f"{inverted}{self._word(self._one(TEXT_OPERATORS))} {text}"
        listed = ", ".join(self._pick(TEXTS) for _ in range(self._random.randint(1, 3)))
        return self._one(
            [
                *[f"{name} {sort} {number}"] * 5,
                f"{number} {sort} {name}",
                *[f"{name} {self._one(['=', '<>'])} {self._one([text, truth])}"] * 2,
                f"{name} {sort} {self._pick(NAMES)}",
                f"{name} {inverted}{self._word('IN')} ({listed})",
                f"{self._one([name, grown])} {self._word('IS')} {inverted}{null}",
                f"{name} {between} {number} {self._word('AND')} {self._number()}",
                f"{grown} {between} {self._operand(depth)} AND {self._operand(depth)}",
                f"{self._one([name, grown])} {looks}",
                f"{grown} {sort} {self._operand(depth)}",
                grown,
            ]
        )

    def _operand(self, depth: int) -> str:
        kind = self._random.randrange(100)
        if kind < 14:
            return self._one(["-", "- ", "+", "NOT ", "not "]) + self._operand(depth)
        if kind < 50:
            return self._pick(NAMES)
        if kind < 70:
            return self._number()
        if kind < 90 or depth <= 0:
            return self._one([self._pick(TEXTS), self._word("TRUE"), self._word("NULL")])
        return f"({self._condition(depth - 1)})"

    # --- mistakes -------------------------------------------------------------------------------

    def _damaged(self, expression: str) -> str:
        words = expression.split(" ")
        for _ in range(self._random.randint(1, 2)):
            place, kind = self._random.randrange(len(words)), self._random.randrange(3)
            if kind == 0:
                words.insert(place, self._one(JUNK))
            elif kind == 1 and len(words) > 1:
                words.pop(place)
            else:
                words[place] = self._one([*JUNK, self._pick(TEXTS), self._number()])
        return self._one([" ", " ", " ", "", "\n", "/**/"]).join(words)


# --- what Apache says -----------------------------------------------------------------------------


def apaches_answers(
    messages: Sequence[dict[str, str]], expressions: Sequence[str], folder: Path
) -> list[list[int] | None]:
    """The indexes of the messages that each expression matches; None where it is refused."""

    def line(kind: str, *words: str) -> str:
        return " ".join([kind, *(base64.b64encode(word.encode()).decode() for word in words)])

    file = folder / "expressions"
    pairs = [[word for pair in message.items() for word in pair] for message in messages]
    lines = [line("M", *words) for words in pairs] + [line("E", one) for one in expressions]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = java_command("firearrow.interop.Expressions", work_dir=folder, arguments=[str(file)])
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(expressions)
    return [
        None
        if answer == "refused"
        else [number for number, letter in enumerate(answer) if letter == "t"]
        for answer in answers
    ]


def matches_of(wanted: SqlFilter, messages: Sequence[dict[str, str]]) -> list[int]:
    return [number for number, each in enumerate(messages) if wanted.matches(each)]


def compiled(expression: str) -> SqlFilter | None:
    try:
        return compile_sql(expression)
    except SubscriptionParseFailed:
        return None


def is_complete_before_its_end(
    expression: str, messages: Sequence[dict[str, str]], matching: list[int]
) -> bool:
    """Whether Apache took the beginning for the whole, and ignored the rest without a word."""
    return any(
        wanted is not None and matches_of(wanted, messages) == matching
        for end in range(len(expression) - 1, 0, -1)
        for wanted in [compiled(expression[:end])]
    )


# --- a sample -------------------------------------------------------------------------------------


def sample(folder: Path) -> dict[str, Any]:
    """A few hundred short expressions of every kind, with Apache's answers."""
    grower = Grower(SAMPLE_SEED)
    messages = [grower.message() for _ in range(24)]
    grown = [text for _ in range(6_000) if len(text := grower.expression()) <= 100]
    groups: dict[str, list[list[Any]]] = {"accepted": [], "refused": [], "text behind": []}
    seen = set()
    for expression, matching in zip(grown, apaches_answers(messages, grown, folder), strict=True):
        if matching is None:
            kind, most = "refused", 150
        elif compiled(expression) is None:
            kind, most = "text behind", 50
        else:
            # Those that match nothing say little, and there are many of them.
            kind, most = "accepted", 450 if matching else 350
        if len(groups[kind]) < most and expression not in seen:
            seen.add(expression)
            groups[kind].append([expression, 23 if matching is None else 0, matching])
    about = (
        "Random SQL92 expressions and what the classes of rocketmq-filter and rocketmq-broker "
        "5.3.3 answer over the messages below, written by tests/interop/sql_expressions.py: "
        "[expression, 0: accepted, 23: refused, indexes of the messages that match]. Of those "
        "with text behind them Apache reads the beginning only; we refuse them."
    )
    return {"about": about, "messages": messages, "groups": groups}


def write_sample() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = sample(Path(folder))
    rows = {
        kind: "[\n" + ",\n".join(json.dumps(row, ensure_ascii=True) for row in group) + "\n]"
        for kind, group in found["groups"].items()
    }
    groups = ",\n".join(f"{json.dumps(kind)}: {text}" for kind, text in rows.items())
    messages = ",\n".join(json.dumps(message) for message in found["messages"])
    SAMPLE.write_text(
        f'{{"about": {json.dumps(found["about"])},\n"messages": [\n{messages}\n],\n'
        f'"groups": {{\n{groups}\n}}}}\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    write_sample()
