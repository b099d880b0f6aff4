"""From positions to tasks: ranges of queues, cut, limited and packed; pure arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from firearrow.spark.offsets import QueueName

    K = TypeVar("K")


class Range(NamedTuple):
    """Messages of one queue, from `start` up to but not including `end`."""

    queue: QueueName
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


def ranges_between(start: Mapping[QueueName, int], end: Mapping[QueueName, int]) -> list[Range]:
    """What lies between two positions, queue by queue; queues that have nothing are left out."""
    return [
        Range(queue, start[queue], stop)
        for queue, stop in sorted(end.items())
        if queue in start and stop > start[queue]
    ]


def share(available: Mapping[K, int], limit: int) -> dict[K, int]:
    """Divide `limit` in proportion to what is there; nobody with something gets nothing.

    More than `limit` is given only when there are more takers than units.
    """
    total = sum(available.values())
    if total <= limit:
        return dict(available)
    takers = {key: count for key, count in available.items() if count > 0}
    given = {key: max(1, count * limit // total) for key, count in takers.items()}
    left = limit - sum(given.values())
    for key in sorted(takers, key=lambda key: takers[key] * limit % total, reverse=True):
        if left <= 0:
            break
        if given[key] < takers[key]:
            given[key] += 1
            left -= 1
    for key in sorted(given, key=lambda key: given[key], reverse=True):
        if left >= 0:
            break
        taken = min(-left, given[key] - 1)  # those that were rounded up to 1 are paid for here
        given[key] -= taken
        left += taken
    return {key: given.get(key, 0) for key in available}


def split(ranges: Iterable[Range], pieces_min: int, rows_max: int) -> list[Range]:
    """Cut ranges so that there are at least so many pieces, none longer than `rows_max`.

    0 means no such wish. The pieces of a range differ by one row at most.
    """
    ranges = [one for one in ranges if one.rows > 0]
    total = sum(one.rows for one in ranges)
    step = max(1, total // pieces_min) if pieces_min > len(ranges) else max(1, total)
    if rows_max > 0:
        step = min(step, rows_max)
    found: list[Range] = []
    for one in ranges:
        count = min(one.rows, -(-one.rows // step))
        bounds = [one.start + one.rows * number // count for number in range(count + 1)]
        found += [Range(one.queue, bounds[number], bounds[number + 1]) for number in range(count)]
    return found


def pack(pieces: Sequence[Range], bins_max: int) -> list[tuple[Range, ...]]:
    """Put pieces into at most so many tasks of about the same size, the biggest piece first."""
    count = min(len(pieces), bins_max) if bins_max > 0 else len(pieces)
    bins: list[list[Range]] = [[] for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=lambda one: (-one.rows, one)):
        lightest = sizes.index(min(sizes))
        bins[lightest].append(piece)
        sizes[lightest] += piece.rows
    return [tuple(sorted(one)) for one in bins]


def plan(
    ranges: Iterable[Range],
    *,
    partitions_min: int = 0,
    partitions_max: int = 0,
    rows_max: int = 0,
) -> list[tuple[Range, ...]]:
    """The ranges of each task; a minimum outranks a maximum, a limit of rows both."""
    pieces = split(ranges, partitions_min, rows_max)
    if rows_max > 0 or partitions_max <= 0:
        return [(piece,) for piece in pieces]
    return pack(pieces, max(partitions_max, partitions_min))
