"""How the queues of a topic are shared among the members of a group, when a broker decides.

Every broker comes to the same result, since all sort queues and members in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.model.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.model.topic import MessageQueue

AVERAGE: Final = "AVG"
CIRCLE: Final = "AVG_BY_CIRCLE"


def share(
    strategy: str | None, queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> list[MessageQueue]:
    """What one of the members gets; both lists are sorted, and the member is among the members."""
    index = members.index(member)
    match strategy or AVERAGE:
        case "AVG":
            # Runs of neighbours; the first ones get one more if it does not come out even.
            size, more = divmod(len(queues), len(members))
            start = index * size + min(index, more)
            return list(queues[start : start + size + (index < more)])
        case "AVG_BY_CIRCLE":
            return list(queues[index :: len(members)])
        case unknown:
            raise InvalidParameter(f"strategy {unknown!r}; {AVERAGE} and {CIRCLE} are known")
