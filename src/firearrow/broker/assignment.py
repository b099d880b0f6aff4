"""How the queues of a topic are shared among the members of a group, when a broker decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.model.allocation import AVERAGE, CIRCLE, average_share, circle_share
from firearrow.model.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.model.topic import MessageQueue


def share(
    strategy: str | None, queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> list[MessageQueue]:
    """What one of the members gets; both lists are sorted, and the member is among the members."""
    index, count = members.index(member), len(members)
    if not strategy or strategy == AVERAGE:
        return average_share(queues, index=index, members=count)
    if strategy == CIRCLE:
        return circle_share(queues, index=index, members=count)
    raise InvalidParameter(f"strategy {strategy!r}; {AVERAGE} and {CIRCLE} are known")
