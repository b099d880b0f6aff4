"""Options become positions: which queues a query reads, and the offsets that it starts and ends at.

`Cluster` is what is asked; a test gives a stand-in, a query the real directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from firearrow.client.errors import NoRoute
from firearrow.spark.errors import DataLoss, OptionError
from firearrow.spark.options import EARLIEST, EVERY_BROKER, EVERY_QUEUE, LATEST
from firearrow.spark.puller import report_loss

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from firearrow.spark.directory import Bounds
    from firearrow.spark.offsets import QueueName
    from firearrow.spark.options import Bound, ReadOptions


class Cluster(Protocol):
    """The part of `Directory` that positions need."""

    def topics(self, pattern: str) -> list[str]: ...

    def queues(self, topics: Iterable[str]) -> list[QueueName]: ...

    def bounds(self, queues: Iterable[QueueName]) -> dict[QueueName, Bounds]: ...

    def offsets_at(self, times: Mapping[QueueName, int]) -> dict[QueueName, int]: ...


def find_queues(options: ReadOptions, cluster: Cluster) -> list[QueueName]:
    """The queues that the options mean; OptionError for topics and queues that do not exist."""
    if options.pattern is not None:
        topics = cluster.topics(options.pattern)
        return cluster.queues(topics) if topics else []
    option = "subscribe" if options.topics else "assign"
    topics = sorted(set(options.topics) or {one.topic for one in options.assigned})
    try:
        queues = cluster.queues(topics)
    except NoRoute as error:
        servers = ";".join(options.connection.nameservers)
        raise OptionError(
            f"topic {str(error)!r} of option {option!r} does not exist, or its brokers are down: "
            f"name server {servers} knows no route. Create the topic, or correct the name"
        ) from None
    if not options.assigned:
        return queues
    chosen = {found for one in options.assigned for found in _meant(one, queues)}
    for one in options.assigned:
        if not _meant(one, queues):
            where = f" on broker {one.broker}" if one.broker else ""
            raise OptionError(
                f"option 'assign': topic {one.topic} has no queue {one.queue_id}{where}; it has "
                f"{', '.join(q.key for q in queues if q.topic == one.topic)}"
            )
    return sorted(chosen)


def _meant(wanted: QueueName, queues: Iterable[QueueName]) -> list[QueueName]:
    return [
        one
        for one in queues
        if one.topic == wanted.topic
        and wanted.queue_id in {EVERY_QUEUE, one.queue_id}
        and wanted.broker in {EVERY_BROKER, one.broker}
    ]


def resolve(
    bound: Bound,
    bounds: Mapping[QueueName, Bounds],
    cluster: Cluster,
    *,
    default: int,
    when_no_later_message: str = "latest",
) -> dict[QueueName, int]:
    """The offset of every queue at one end; `default` is for queues that JSON does not name."""
    if bound.kind == "earliest":
        return {queue: place.least for queue, place in bounds.items()}
    if bound.kind == "latest":
        return {queue: place.behind for queue, place in bounds.items()}
    if bound.kind == "timestamp":
        times = dict.fromkeys(bounds, bound.timestamp_ms)
        return _by_time(bound, bounds, cluster, times, when_no_later_message)
    named = _by_queue(bound, bounds)
    if bound.kind == "timestamps":
        times = {queue: ms for queue, ms in named.items() if ms >= 0}
        found = _by_time(bound, bounds, cluster, times, when_no_later_message)
        rest = {queue: named.get(queue, default) for queue in bounds if queue not in times}
        return found | {queue: _special(place, bounds[queue]) for queue, place in rest.items()}
    return {queue: _special(named.get(queue, default), place) for queue, place in bounds.items()}


def _special(offset: int, place: Bounds) -> int:
    return {EARLIEST: place.least, LATEST: place.behind}.get(offset, offset)


def _by_queue(bound: Bound, bounds: Mapping[QueueName, Bounds]) -> dict[QueueName, int]:
    """Numbers of JSON by real queue; who says which broker and queue outranks who does not."""
    found: dict[QueueName, int] = {}
    for wanted, number in sorted(bound.queues, key=_how_exact):
        meant = _meant(wanted, bounds)
        if not meant:
            name = wanted.key.replace("@@", "@").removesuffix(f"@{EVERY_QUEUE}")
            what = "topic" if wanted.queue_id == EVERY_QUEUE else "queue"
            raise OptionError(
                f"option {bound.option!r} names {what} {name}, which is not read here; read are "
                f"{', '.join(sorted(queue.key for queue in bounds))}"
            )
        found.update(dict.fromkeys(meant, number))
    return found


def _how_exact(named: tuple[QueueName, int]) -> tuple[bool, bool]:
    return named[0].queue_id != EVERY_QUEUE, named[0].broker != EVERY_BROKER


def _by_time(
    bound: Bound,
    bounds: Mapping[QueueName, Bounds],
    cluster: Cluster,
    times: Mapping[QueueName, int],
    when_no_later_message: str,
) -> dict[QueueName, int]:
    found = cluster.offsets_at(times) if times else {}
    for queue, offset in found.items():
        place = bounds[queue]
        if offset >= place.behind and when_no_later_message == "error":
            raise OptionError(
                f"option {bound.option!r}: {queue} has no message from time {times[queue]} on. "
                "Choose an earlier time, or set startingOffsetsByTimestampStrategy=latest to begin "
                "at the end there"
            )
        found[queue] = min(max(offset, place.least), place.behind)
    return found


def check_start(
    start: Mapping[QueueName, int], bounds: Mapping[QueueName, Bounds], *, fail: bool
) -> dict[QueueName, int]:
    """Starting offsets of which the messages still exist; loss is an error or a warning."""
    checked = dict(start)
    for queue, offset in start.items():
        place = bounds.get(queue)
        if place is None:
            continue
        if offset < place.least:
            report_loss(queue, offset, place.least, fail=fail)
            checked[queue] = place.least
        elif offset > place.behind:
            text = (
                f"{queue} ends at {place.behind}, before the offset {offset} to start from: was "
                "the topic created anew, or a log cut off?"
            )
            if fail:
                raise DataLoss(
                    f"{text} Start from other offsets (with a new checkpoint), or set "
                    "failOnDataLoss=false to wait until the queue is that long"
                )
    return checked
