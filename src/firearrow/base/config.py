"""Typed settings: defaults, then a RocketMQ ``.properties`` file, then the environment, then flags.

A role declares a frozen dataclass whose fields are made with `setting`. The key of a field is its
name in camel case, as RocketMQ spells it, unless it says otherwise. Only fields marked `remote`
can be changed by a request; everything else (paths, ports, addresses) never is.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import logging
import re
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = logging.getLogger(__name__)

ENVIRONMENT_PREFIX: Final = "FIREARROW_"

T = TypeVar("T")


def setting(
    default: Any,  # noqa: ANN401 - the annotation of the field says what it is
    *,
    key: str | None = None,
    remote: bool = False,
    least: int | None = None,
    most: int | None = None,
) -> Any:  # noqa: ANN401
    """A field of a settings class. `least` and `most` bound a number."""
    metadata = {"key": key, "remote": remote, "least": least, "most": most}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where values come from, for error messages, and how strict we are about unknown keys."""

    name: str
    values: Mapping[str, str]
    tolerant: bool = False  # a file written for Apache RocketMQ may hold keys we have no use for


def key_of(field: dataclasses.Field[Any]) -> str:
    """The name of a setting in files, requests and listings."""
    return field.metadata.get("key") or camel(field.name)


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def environment_values(cls: type[Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Settings from the environment: ``FIREARROW_LISTEN_PORT`` is ``listenPort``."""
    values = {}
    for field in dataclasses.fields(cls):
        name = ENVIRONMENT_PREFIX + re.sub(r"\W", "_", field.name).upper()
        if name in environ:
            values[key_of(field)] = environ[name]
    return values


def load(cls: type[T], sources: Iterable[Source], *, ignored: frozenset[str] = frozenset()) -> T:
    """Settings from several sources, later ones over earlier ones.

    `ignored` names keys that RocketMQ has and we do not need; they are mentioned, not refused.
    """
    fields = {key_of(field): field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    values: dict[str, object] = {}
    for source in sources:
        for key, text in source.values.items():
            field = fields.get(key)
            if field is not None:
                values[field.name] = parse_value(field, hints[field.name], text, source.name)
            elif key in ignored:
                log.info("%s: %s has no effect here", source.name, key)
            else:
                complaint = f"{source.name}: unknown setting {key!r}{nearest(key, fields)}"
                if not source.tolerant:
                    raise ConfigError(complaint)
                log.warning("%s; it is ignored", complaint)
    return cls(**values)


def nearest(key: str, known: Iterable[str]) -> str:
    """A hint for a mistyped key, or nothing."""
    close = difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def parse_value(field: dataclasses.Field[Any], kind: Any, text: str, source: str) -> object:  # noqa: ANN401
    """The value of one setting; a ConfigError names source, key and what would be right."""
    key = key_of(field)
    text = text.strip()
    optional = [part for part in typing.get_args(kind) if part is not type(None)]
    if optional:
        if not text:
            return None
        (kind,) = optional
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is int:
            return _bounded(field, int(text))
        if issubclass(kind, enum.Enum):
            return kind(text.lower())
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"{source}: {key}={text!r}: {expectation(field, kind)} expected"
        ) from error
    if kind is Path:
        return Path(text).expanduser()
    assert kind is str, f"{key}: settings of type {kind} have no parser"
    return text


def _bounded(field: dataclasses.Field[Any], number: int) -> int:
    least, most = field.metadata.get("least"), field.metadata.get("most")
    if (least is not None and number < least) or (most is not None and number > most):
        raise ValueError(number)
    return number


def expectation(field: dataclasses.Field[Any], kind: Any) -> str:  # noqa: ANN401
    """What a setting's value must look like, in words."""
    if kind is bool:
        return "true or false"
    if kind is int:
        least, most = field.metadata.get("least"), field.metadata.get("most")
        if least is not None and most is not None:
            return f"a number from {least} to {most}"
        return "a number" if least is None else f"a number of at least {least}"
    return " or ".join(member.value for member in kind)


def to_properties(config: Any) -> dict[str, str]:  # noqa: ANN401
    """Every setting as text, by key: what a configuration listing shows."""
    values = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is None:
            text = ""
        elif isinstance(value, bool):
            text = "true" if value else "false"
        else:
            text = str(value.value if isinstance(value, enum.Enum) else value)
        values[key_of(field)] = text
    return values


class NotRemote(ConfigError):
    """A request tried to change a setting that requests must not change."""


def updated(config: T, changes: Mapping[str, str], *, who: str) -> T:
    """`config` with the changes that a request asks for: all of them, or an error and none."""
    fields = {key_of(field): field for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(type(config))
    values: dict[str, object] = {}
    for key, text in changes.items():
        field = fields.get(key)
        if field is None:
            raise ConfigError(f"unknown setting {key!r}{nearest(key, fields)}")
        if not field.metadata.get("remote"):
            remote = sorted(k for k, f in fields.items() if f.metadata.get("remote"))
            raise NotRemote(
                f"{key} can only be changed in the configuration file, with a restart; "
                f"by request: {', '.join(remote)}"
            )
        values[field.name] = parse_value(field, hints[field.name], text, who)
    return dataclasses.replace(config, **values)  # type: ignore[type-var]
