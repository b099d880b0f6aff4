"""YAML with its line numbers: so that a mistake is named with the place where it stands. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml

from firearrow.base.config import nearest
from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
DEPTH_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class Part:
    """One value of the file: where it stands, and what it is.

    `value` is a string, a number, a bool, None, a list of parts, or a dict from keys to parts.
    """

    file: str
    path: str  # "sinks.table.from"
    line: int
    value: Any = field(hash=False)

    def wrong(self, what: str) -> ConfigError:
        """An error that leads to this place."""
        where = f"{self.file}, line {self.line}"
        return ConfigError(f"{where}, {self.path}: {what}" if self.path else f"{where}: {what}")

    # --- what it should be ------------------------------------------------------------------

    def mapping(self, known: Iterable[str] | None = None) -> dict[str, Part]:
        """A mapping, with no key but the known ones."""
        if not isinstance(self.value, dict):
            raise self.wrong("names with values expected")
        if known is not None:
            names = list(known)
            for key, part in self.value.items():
                if key not in names:
                    hint = nearest(key, names) or f"; known: {', '.join(names)}"
                    raise part.wrong(f"nothing is called {key!r} here{hint}")
        return self.value

    def text(self) -> str:
        if isinstance(self.value, bool) or not isinstance(self.value, str | int | float):
            raise self.wrong("a text expected")
        return str(self.value)

    def number(self, least: int = 0) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < least:
            raise self.wrong(f"a whole number from {least} on expected")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong("true or false expected")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """A list of texts, or one alone."""
        if isinstance(self.value, list):
            return tuple(part.text() for part in self.value)
        return (self.text(),)

    def settings(self) -> dict[str, str]:
        """A mapping from names to texts; true and false as Spark writes them."""
        return {
            key: str(part.value).lower() if isinstance(part.value, bool) else part.text()
            for key, part in self.mapping().items()
        }

    def one_of(self, names: Iterable[str]) -> str:
        """A text out of a few."""
        known = [str(name) for name in names]
        if self.text() not in known:
            hint = nearest(self.text(), known) or f"; {', '.join(known)} expected"
            raise self.wrong(f"{self.text()!r} is not known here{hint}")
        return self.text()


def parse(text: str, file: str, environ: Mapping[str, str] | None = None) -> Part:
    """The whole file; `${NAME}` and `${NAME:-otherwise}` come from the environment."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise ConfigError(f"{file}, line {line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not YAML: {error}") from error
    if node is None:
        raise ConfigError(f"{file} is empty")
    return _part(node, file, "", os.environ if environ is None else environ)


def _part(node: yaml.Node, file: str, path: str, environ: Mapping[str, str]) -> Part:
    line = node.start_mark.line + 1
    if path.count(".") > DEPTH_MAX:
        raise ConfigError(f"{file}, line {line}: nested deeper than {DEPTH_MAX} levels")
    if isinstance(node, yaml.MappingNode):
        return Part(file, path, line, dict(_entries(node, file, path, environ)))
    if isinstance(node, yaml.SequenceNode):
        items = [
            _part(one, file, f"{path}[{number}]", environ) for number, one in enumerate(node.value)
        ]
        return Part(file, path, line, items)
    value = yaml.SafeLoader("").construct_object(node)
    bare = Part(file, path, line, value)
    if isinstance(value, str):
        return Part(file, path, line, _with_variables(bare, environ))
    if value is None or isinstance(value, bool | int | float):
        return bare
    return Part(file, path, line, node.value)  # a date, as it was written


def _entries(
    node: yaml.MappingNode, file: str, path: str, environ: Mapping[str, str]
) -> Iterator[tuple[str, Part]]:
    seen: set[str] = set()
    for key_node, value_node in node.value:
        key = str(key_node.value)
        line = key_node.start_mark.line + 1
        if key in seen:
            raise ConfigError(f"{file}, line {line}: {key} is there twice")
        seen.add(key)
        part = _part(value_node, file, f"{path}.{key}" if path else key, environ)
        yield key, Part(file, part.path, line, part.value)


def _with_variables(part: Part, environ: Mapping[str, str]) -> str:
    def value_of(match: re.Match[str]) -> str:
        value = environ.get(match[1], match[2])
        if value is None:
            raise part.wrong(f"${{{match[1]}}} is not set; set it, or write ${{{match[1]}:-value}}")
        return value

    return _VARIABLE.sub(value_of, str(part.value))
