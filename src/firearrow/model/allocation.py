"""How the queues of a topic are shared among the members of a group.

Whoever shares (each client for itself, or a broker on behalf of its clients) comes to the same
result, since all sort queues and members in the same way and count as RocketMQ does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

AVERAGE: Final = "AVG"
CIRCLE: Final = "AVG_BY_CIRCLE"

_T = TypeVar("_T")


def average_share(queues: Sequence[_T], *, index: int, members: int) -> list[_T]:
    """Runs of neighbours; the first members get one more if it does not come out even.

    Ten queues and three members: 0 1 2 3, 4 5 6, 7 8 9.
    """
    assert 0 <= index < members
    size, more = divmod(len(queues), members)
    start = index * size + min(index, more)
    return list(queues[start : start + size + (index < more)])


def circle_share(queues: Sequence[_T], *, index: int, members: int) -> list[_T]:
    """Dealt like cards. Eight queues and three members: 0 3 6, 1 4 7, 2 5."""
    assert 0 <= index < members
    return list(queues[index::members])
