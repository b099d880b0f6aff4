"""Namespaces of the first kind: a prefix on the wire that applications never see.

    orders           -> shop%orders
    %RETRY%billing   -> %RETRY%shop%billing

System topics and groups, and names that have the prefix already, stay as they are.
"""

from __future__ import annotations

from typing import Final

from firearrow.model.group import is_system_group
from firearrow.model.topic import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

_SEPARATOR: Final = "%"
_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX)


def wrap(namespace: str, name: str) -> str:
    """The name on the wire."""
    if not namespace or not name or is_system_topic(name) or is_system_group(name):
        return name
    front, rest = _cut(name)
    if rest.startswith(namespace + _SEPARATOR):
        return name
    return f"{front}{namespace}{_SEPARATOR}{rest}"


def unwrap(namespace: str, name: str) -> str:
    """The name that the application knows."""
    if not namespace:
        return name
    front, rest = _cut(name)
    return front + rest.removeprefix(namespace + _SEPARATOR)


def _cut(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
