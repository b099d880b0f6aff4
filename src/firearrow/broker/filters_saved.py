"""`config/pythonFilter.json`: filters written in Python. Ours; RocketMQ does not look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from firearrow.filters.server import InstalledFilter
from firearrow.model.topic import Int64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class SavedPythonFilter(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    source: str
    installed_time: Int64 = 0
    installed_by: str = ""


class SavedPythonFilters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    filters: tuple[SavedPythonFilter, ...] = ()


def saved_of(filters: Iterable[InstalledFilter]) -> SavedPythonFilters:
    return SavedPythonFilters(
        filters=tuple(
            SavedPythonFilter(
                name=one.name,
                source=one.source,
                installed_time=one.installed_ms,
                installed_by=one.installed_by,
            )
            for one in filters
        )
    )


def taken_from(saved: SavedPythonFilters) -> Iterator[InstalledFilter]:
    for one in saved.filters:
        yield InstalledFilter(one.name, one.source, one.installed_time, one.installed_by)
