"""Flags as RocketMQ's tools take them: ``-b ADDR``, ``--brokerAddr ADDR`` or with an equal sign."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Flag(NamedTuple):
    short: str
    long: str
    help: str
    takes: bool = True  # followed by a value
    required: bool = False


def flag(spec: str, help_text: str) -> Flag:
    """From a short spelling: ``b brokerAddr``, ``t! topic`` (needed), ``m| more`` (no value).

    A flag without a short name has none before the space: ``| cplus``.
    """
    short, _, long = spec.partition(" ")
    return Flag(short.rstrip("!|"), long, help_text, takes="|" not in short, required="!" in short)


class Given:
    """The flags of one call."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def has(self, short: str) -> bool:
        return short in self._values

    def text(self, short: str, default: str = "") -> str:
        return self._values.get(short, default).strip()

    def optional(self, short: str) -> str | None:
        return self.text(short) or None

    def number(self, short: str, default: int = 0) -> int:
        given = self.text(short)
        if not given:
            return default
        try:
            return int(given)
        except ValueError:
            raise ConfigError(f"-{short} {given!r}: a number expected") from None

    def true(self, short: str, *, default: bool = False) -> bool:
        return self.text(short).lower() == "true" if self.has(short) else default


COMMON = (
    flag("n namesrvAddr", "Name servers, separated by ';'."),
    flag("h| help", "Show this."),
)


def parse(name: str, flags: Sequence[Flag], words: Sequence[str]) -> Given:
    """What was given; ConfigError for what the command does not know, or needs."""
    known = {f"-{one.short or one.long}": one for one in flags}
    known |= {f"--{one.long}": one for one in flags}
    known |= {f"-{one.long}": one for one in flags}
    values: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        key, equals, value = word.partition("=")
        one = known.get(word) or (known.get(key) if equals else None)
        if one is None:
            raise ConfigError(f"{word!r} is no option of {name}; see: firearrow mqadmin {name} -h")
        if not one.takes:
            values[one.short] = "true"
        elif word not in known:
            values[one.short] = value
        elif left:
            values[one.short] = left.pop(0)
        else:
            raise ConfigError(f"{word} needs a value: {one.help}")
    missing = [one for one in flags if one.required and one.short not in values]
    if missing and "h" not in values:
        names = ", ".join(f"-{one.short} ({one.long})" for one in missing)
        raise ConfigError(f"{name} needs {names}; see: firearrow mqadmin {name} -h")
    return Given(values)
