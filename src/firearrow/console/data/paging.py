"""A page of a long list: filtered, sorted and cut on the server. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

SIZE: Final = 25
SIZE_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a visitor wants to see of a list. Pages count from 1."""

    text: str = ""
    kind: str = ""  # of rows that come in kinds; empty for all
    sort: str = ""
    descending: bool = False
    page: int = 1
    size: int = SIZE


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    rows: list[T]
    total: int  # of all that fit the query
    page: int = 1


def page_of(
    rows: Sequence[T],
    query: Query,
    *,
    text: Callable[[T], str],
    kind: Callable[[T], str] | None = None,
    keys: Mapping[str, Callable[[T], Any]] | None = None,
) -> Page[T]:
    """`rows` come sorted by their names; `keys` are other ways to sort them."""
    found: Sequence[T] = rows
    if query.kind and kind is not None:
        found = [row for row in found if kind(row) == query.kind]
    if needle := query.text.strip().casefold():
        found = [row for row in found if needle in text(row).casefold()]
    key = (keys or {}).get(query.sort)
    if key is not None:
        found = sorted(found, key=key, reverse=query.descending)
    elif query.descending:
        found = found[::-1]
    size = min(max(1, query.size), SIZE_MAX)
    last = max(1, -(-len(found) // size))
    page = min(max(1, query.page), last)
    return Page(list(found[(page - 1) * size : page * size]), len(found), page)
