"""The JSON that Java peers speak: fastjson's dialect, read leniently and written exactly.

What it adds to JSON, and what we do about it:

- Keys without quotes, in single quotes, or bare integers (``{0:"addr"}``): read; integers are
  written bare only on request, since every known client also reads the quoted form.
- Objects as keys (``{{"queueId":0}:7}``): read and written, by way of `ObjectMap`. `parse` keeps
  such a key as its own source text, which is also how some writers pack it into a string.
- ``{"$ref":"$.a"}`` for an object that appeared before: resolved, never written.
- Numbers as text and text as numbers, enum members by name or ordinal, null for "nothing": read.

Keys of structs are sorted and there is no white space: Go clients split some bodies as text.
"""

from __future__ import annotations

import functools
import json
import math
from base64 import b64encode
from decimal import Decimal
from enum import Enum, Flag
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin

import msgspec
from msgspec import inspect

from firearrow.wire.json_reader import (
    DEPTH_MAX,
    REFERENCE,
    JavaJsonError,
    Settler,
    parse,
    to_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["DEPTH_MAX", "JavaJsonError", "ObjectMap", "convert", "decode", "encode", "parse"]

_T = TypeVar("_T")
_K = TypeVar("_K")
_V = TypeVar("_V")


class ObjectMap(dict[_K, _V]):
    """A map whose keys are structs: a `MessageQueue` to an offset, most often."""

    __slots__ = ()


# --- reading ----------------------------------------------------------------------------------


def decode(data: bytes | str, kind: type[_T]) -> _T:
    """Read a document into a typed value, with all of fastjson's leniency."""
    raw = to_bytes(data)
    if REFERENCE not in raw:
        try:
            return msgspec.json.decode(raw, type=kind, strict=False, dec_hook=_read_custom)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass  # not plain JSON, or one of the liberties below
    return convert(parse(raw), kind)


def convert(value: object, kind: type[_T]) -> _T:
    """Turn what `parse` returned into a typed value."""
    try:
        return msgspec.convert(_reshaper(kind)(value), kind, strict=False, dec_hook=_read_custom)
    except msgspec.ValidationError as error:
        raise JavaJsonError(f"{_name_of(kind)}: {error}") from None
    except RecursionError:
        raise JavaJsonError(f"{_name_of(kind)}: nested too deeply") from None


def _name_of(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


# --- from plain values to typed ones ----------------------------------------------------------
#
# msgspec reads numbers from text by itself. What is left is done before it looks: text from
# numbers, enum members from ordinals, and null where a default is meant.

_reshapers: Final[dict[object, Callable[[object], object]]] = {}


def _reshaper(kind: object) -> Callable[[object], object]:
    reshape = _reshapers.get(kind)
    if reshape is None:
        reshape = _reshapers[kind] = _reshaper_of(inspect.type_info(kind))
    return reshape


def _reshaper_of(info: inspect.Type) -> Callable[[object], object]:
    match info:
        case inspect.StructType():
            reshape = _struct_reshaper(info)
        case inspect.DictType():
            reshape = _dict_reshaper(info)
        case inspect.ListType() | inspect.VarTupleType():
            reshape = _list_reshaper(info)
        case inspect.UnionType():
            (inner,) = (part for part in info.types if not isinstance(part, inspect.NoneType))
            reshape = _reshaper_of(inner)
        case inspect.EnumType():
            reshape = _enum_reshaper(info.cls)
        case inspect.StrType():
            reshape = _reshape_text
        case inspect.IntType() | inspect.FloatType():
            reshape = _reshape_number
        case inspect.BoolType():
            reshape = _reshape_bool
        case _:
            reshape = _same
    return reshape


def _same(value: object) -> object:
    return value


def _takes_null(info: inspect.Type) -> bool:
    return isinstance(info, inspect.AnyType) or (
        isinstance(info, inspect.UnionType) and info.includes_none
    )


def _struct_reshaper(info: inspect.StructType) -> Callable[[object], object]:
    fields = {
        field.encode_name: (_reshaper_of(field.type), _takes_null(field.type))
        for field in info.fields
    }

    def reshape(value: object) -> object:
        if not isinstance(value, dict):
            return value
        shaped: dict[str, object] = {}
        for name, item in value.items():
            if name in fields:
                field_reshape, takes_null = fields[name]
                new = field_reshape(item)
                if new is not None or takes_null:
                    shaped[name] = new
        return shaped

    return reshape


def _dict_reshaper(info: inspect.DictType) -> Callable[[object], object]:
    item_reshape, takes_null = _reshaper_of(info.value_type), _takes_null(info.value_type)

    def reshape(value: object) -> object:
        if not isinstance(value, dict):
            return value
        shaped = {key: item_reshape(item) for key, item in value.items()}
        if takes_null:
            return shaped
        return {key: item for key, item in shaped.items() if item is not None}

    return reshape


def _list_reshaper(
    info: inspect.ListType | inspect.VarTupleType,
) -> Callable[[object], object]:
    item_reshape, takes_null = _reshaper_of(info.item_type), _takes_null(info.item_type)

    def reshape(value: object) -> object:
        if not isinstance(value, list):
            return value
        shaped = [item_reshape(item) for item in value]
        return shaped if takes_null else [item for item in shaped if item is not None]

    return reshape


def _enum_reshaper(kind: type[Enum]) -> Callable[[object], object]:
    by_name: dict[object, object] = {member.name: member.value for member in kind}
    for ordinal, member in enumerate(kind):
        by_name[ordinal] = by_name[str(ordinal)] = member.value

    def reshape(value: object) -> object:
        return by_name.get(value, value) if isinstance(value, str | int) else value

    return reshape


def _reshape_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _double_text(value)
    return value


def _reshape_number(value: object) -> object:
    return int(value) if isinstance(value, bool) else _reshape_bool(value)


def _reshape_bool(value: object) -> object:
    # An empty text is null to fastjson.
    return None if isinstance(value, str) and value in {"", "null"} else value


def _read_custom(kind: Any, value: object) -> object:  # noqa: ANN401
    if kind is object:
        return Settler(value, has_references=False).settle()
    if get_origin(kind) is not ObjectMap:
        raise NotImplementedError(f"{kind} has no JSON form")
    key_kind, value_kind = get_args(kind)
    if not isinstance(value, dict):
        raise TypeError(f"Expected `object`, got `{type(value).__name__}`")
    table: ObjectMap[object, object] = ObjectMap()
    for key, item in value.items():
        if item is not None:
            table[decode(key, key_kind)] = convert(item, value_kind)
    return table


# --- writing ----------------------------------------------------------------------------------


def encode(value: object, *, bare_int_keys: bool = False) -> bytes:
    """Write a value as Java would, byte for byte up to the order of hash maps.

    `bare_int_keys` gives ``{0:"addr"}``, which is what Java sends to old peers and what no strict
    parser reads. Absent values (None) are left out; a float that is no number becomes null.
    """
    writer = _Writer(bare_int_keys=bare_int_keys)
    writer.write(value, 0)
    return "".join(writer.parts).encode("utf-8", "replace")


_quote: Final = json.JSONEncoder(ensure_ascii=False).encode


class _Writer:
    """Collects the text of one document, piece by piece."""

    __slots__ = ("_bare_int_keys", "parts")

    def __init__(self, *, bare_int_keys: bool) -> None:
        self.parts: list[str] = []
        self._bare_int_keys = bare_int_keys

    def write(self, value: object, depth: int) -> None:
        if depth > 2 * DEPTH_MAX:  # what we have read into a member may have all levels itself
            raise ValueError("the value is nested too deeply, or contains itself")
        if isinstance(value, msgspec.Struct):
            self._write_struct(value, depth)
        elif isinstance(value, dict):
            self._write_map(value, depth)
        elif isinstance(value, (list, tuple)):
            self._write_list(value, depth)
        else:
            self.parts.append(_scalar_text(value))

    def _write_struct(self, value: msgspec.Struct, depth: int) -> None:
        put = self.parts.append
        separator = "{"
        for name, prefix in _sorted_fields(type(value)):
            item = getattr(value, name)
            if item is not None:
                put(separator)
                put(prefix)
                self.write(item, depth + 1)
                separator = ","
        put("{}" if separator == "{" else "}")

    def _write_map(self, value: dict[Any, object], depth: int) -> None:
        put = self.parts.append
        separator = "{"
        for key, item in value.items():
            if item is not None:
                put(separator)
                self._write_key(key, depth)
                put(":")
                self.write(item, depth + 1)
                separator = ","
        put("{}" if separator == "{" else "}")

    def _write_key(self, key: object, depth: int) -> None:
        if isinstance(key, msgspec.Struct):
            # Never as text in quotes: fastjson before 1.2.66 and Go need the bare object.
            self._write_struct(key, depth + 1)
        elif isinstance(key, int) and not isinstance(key, bool | Enum):
            self.parts.append(str(key) if self._bare_int_keys else f'"{key}"')
        elif isinstance(key, str | Enum):
            self.parts.append(_scalar_text(key))
        else:
            raise TypeError(f"{type(key).__name__} cannot be a JSON key")

    def _write_list(self, value: Sequence[object], depth: int) -> None:
        separator = "["
        for item in value:
            self.parts.append(separator)
            self.write(item, depth + 1)
            separator = ","
        self.parts.append("[]" if separator == "[" else "]")


@functools.cache
def _sorted_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    fields = sorted(msgspec.structs.fields(kind), key=lambda field: field.encode_name)
    return tuple((field.name, f"{_quote(field.encode_name)}:") for field in fields)


def _scalar_text(value: object) -> str:
    if isinstance(value, Enum) and not isinstance(value, Flag):
        text = _quote(value.name)
    elif isinstance(value, str):
        text = _quote(value)
    elif value is None or isinstance(value, bool):
        text = "null" if value is None else "true" if value else "false"
    elif isinstance(value, int):
        text = str(int(value))
    elif isinstance(value, float):
        text = _double_text(value)
    elif isinstance(value, bytes):
        text = f'"{b64encode(value).decode()}"'
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return text


def _double_text(value: float) -> str:
    """As Java prints a double: ``0.0``, ``1.0E7``."""
    if math.isnan(value) or math.isinf(value):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    exponent += len(text) - 1
    fraction = text[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{text[0]}.{fraction}E{exponent}"
