"""How typed header fields become the text-to-text mapping of a command, and back.

A header is a frozen struct whose fields carry RocketMQ's names in Python's spelling; the wire name
is the camel-case form unless the class renames it. Rules of reading, which are Java's: unknown
fields are ignored; an optional field that does not parse keeps its default; anything but "true" is
false. Unlike Java, which logs and later trips over a null, a required field that is missing or
does not parse is an error that names it.
"""

from __future__ import annotations

import re
import types
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, Union, get_args, get_origin

import msgspec

from firearrow.base.errors import FirearrowError
from firearrow.model.topic import Int32, Int64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Header", "HeaderError", "Int32", "Int64"]


_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)  # what Java's parseLong takes


class HeaderError(FirearrowError):
    """A request lacks a required field, or carries one that cannot be read."""


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of every request and response header."""

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """Read the fields of this header out of a command's extension fields."""
        values: dict[str, object] = {}
        for name, wire_name, parse, _, required in _plan(cls):
            text = ext.get(wire_name)
            if text is None:
                if required:
                    raise HeaderError(f"{cls.__name__}: required field {wire_name!r} is missing")
                continue
            try:
                values[name] = parse(text)
            except ValueError as error:
                if required:
                    raise HeaderError(f"{cls.__name__}: field {wire_name!r}: {error}") from None
        return cls(**values)

    def to_ext(self) -> dict[str, str]:
        """The extension fields of this header; absent ones stay absent."""
        ext: dict[str, str] = {}
        for name, wire_name, _, write, _ in _plan(type(self)):
            value = getattr(self, name)
            if value is not None:
                ext[wire_name] = write(value)
        return ext


_Plan = tuple[tuple[str, str, "Callable[[str], object]", "Callable[[Any], str]", bool], ...]
_plans: Final[dict[type[Header], _Plan]] = {}


def _plan(cls: type[Header]) -> _Plan:
    """How to read and write each field of a header class, worked out once."""
    plan = _plans.get(cls)
    if plan is None:
        plan = tuple(
            (field.name, field.encode_name, *_codec(field.type), field.required)
            for field in msgspec.structs.fields(cls)
        )
        _plans[cls] = plan
    return plan


def _codec(kind: Any) -> tuple[Callable[[str], object], Callable[[Any], str]]:  # noqa: ANN401
    if get_origin(kind) in {Union, types.UnionType}:
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is Annotated:
        base, meta = get_args(kind)
        assert base is int, kind
        return _int_reader(meta.ge, meta.le), str
    if kind is str:
        return _same, _same
    if kind is bool:
        return _read_bool, _write_bool
    assert isinstance(kind, type), f"{kind} has no header codec"
    assert issubclass(kind, Enum), f"{kind} has no header codec"
    return _enum_reader(kind), _write_enum


def _same(text: str) -> str:
    return text


def _read_bool(text: str) -> bool:
    return text.lower() == "true"


def _write_bool(value: bool) -> str:  # noqa: FBT001
    return "true" if value else "false"


def _write_enum(value: Enum) -> str:
    return value.name


def _int_reader(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if _DECIMAL.fullmatch(text) and least <= (number := int(text)) <= most:
            return number
        raise ValueError(f"{text[:40]!r} is not an integer of {most.bit_length() + 1} bits")

    return read


def _enum_reader(kind: type[Enum]) -> Callable[[str], Enum]:
    by_name = {member.name.upper(): member for member in kind}

    def read(text: str) -> Enum:
        try:
            return by_name[text.upper()]
        except KeyError:
            raise ValueError(f"{text[:40]!r} is none of {', '.join(by_name)}") from None

    return read
