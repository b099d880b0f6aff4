"""Progress of groups, as Admin sees it: how far, how far behind, and moving them.

A reset is planned first, queue by queue, from what brokers say at that moment; the plan is what a
dry run shows. Brokers of RocketMQ 5 are then told the offset of each queue, and the next pull of
a running member goes on there. Older ones know only times, and running members; what they cannot
do for a stopped group is done by committing offsets for it, as `mqadmin` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from firearrow.client.admin_cluster import master_of, together
from firearrow.client.admin_results import GroupLag, OffsetReset, QueueLag, plan_queue
from firearrow.client.errors import InvalidRequest, ResetImpossible
from firearrow.model.errors import (
    ConsumerNotOnline,
    QueryNotFound,
    RequestNotSupported,
    ServerFailed,
)
from firearrow.model.topic import MessageQueue
from firearrow.wire.bodies import ConsumeStats, ConsumeStatsList, GroupProgress, OffsetWrapper
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import (
    GetBrokerConsumeStatsRequest,
    GetConsumeStatsRequest,
    QueryConsumerOffsetReply,
    QueryConsumerOffsetRequest,
    ResetOffsetRequest,
)
from firearrow.wire.java_json import ObjectMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from firearrow.client.admin_cluster import Cluster
    from firearrow.client.admin_groups import Groups
    from firearrow.client.admin_results import QueueReset
    from firearrow.model.topic import BrokerData

ResetTarget: TypeAlias = int | Literal["earliest", "latest"] | Mapping[MessageQueue, int]

SERVER_SIDE_RESET: Final = "useServerSideResetOffset"  # a broker's setting, since 5.1
LIST_TIMEOUTS: Final = 6  # of all groups at once: six times the usual patience
EARLIEST_MS: Final = 0
LATEST_MS: Final = -1  # what the request has for "to the end"


class Offsets:
    """Offsets of groups; names are those on the wire."""

    def __init__(self, cluster: Cluster, groups: Groups) -> None:
        self._cluster = cluster
        self._groups = groups

    # --- how far ----------------------------------------------------------------------------

    async def lag(self, group: str, topic: str | None) -> GroupLag:
        stats = await self._stats(group, topic)
        if not any(one.offset_table for one in stats):
            await self._groups.configs(group)  # nothing consumed yet, or no such group: say which
        return self._summed(group, stats)

    def _summed(self, group: str, stats: Iterable[ConsumeStats]) -> GroupLag:
        shown = self._cluster.shown
        stats = list(stats)
        queues = [
            QueueLag(
                queue=shown(queue),
                broker_offset=place.broker_offset,
                committed_offset=max(0, place.consumer_offset),
                pulled_offset=place.pull_offset,
                last_timestamp_ms=place.last_timestamp or None,
            )
            for one in stats
            for queue, place in one.offset_table.items()
        ]
        return GroupLag(
            group=self._cluster.session.unwrap(group),
            queues=tuple(sorted(queues, key=lambda one: one.queue)),
            consume_tps=sum(one.consume_tps for one in stats),
        )

    async def all_lags(self) -> dict[str, GroupLag]:
        """How far every group is: one question to each broker, not one for each group."""
        found: dict[str, list[ConsumeStats]] = {}
        for told in await together(map(self._progress, await self._cluster.all_brokers())):
            for group, stats in told:
                found.setdefault(group, []).extend(stats)
        return {group: self._summed(group, stats) for group, stats in sorted(found.items())}

    async def _progress(self, broker: BrokerData) -> list[tuple[str, Sequence[ConsumeStats]]]:
        """Of all groups at a broker. Apache's say it in a form that is read slowly."""
        ask, address = self._cluster.ask, master_of(broker)
        patience_ms = LIST_TIMEOUTS * self._cluster.session.options.call_timeout_ms
        kind = dict[str, GroupProgress]
        try:
            told = await ask(address, RequestCode.GROUP_PROGRESS, kind, timeout_ms=patience_ms)
        except RequestNotSupported:
            code = RequestCode.GET_BROKER_CONSUME_STATS
            header = GetBrokerConsumeStatsRequest(is_order=False)
            answer = await ask(address, code, ConsumeStatsList, header, timeout_ms=patience_ms)
            return [pair for groups in answer.consume_stats_list for pair in groups.items()]
        return [(group, [stats_of(broker.broker_name, one)]) for group, one in told.items()]

    async def _stats(self, group: str, topic: str | None) -> list[ConsumeStats]:
        header = GetConsumeStatsRequest(consumer_group=group, topic=topic)
        return await together(
            self._cluster.ask(address, RequestCode.GET_CONSUME_STATS, ConsumeStats, header)
            for address in await self._groups.masters(group, topic)
        )

    async def committed(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """By queue; None where the group has committed nothing."""
        queues = await self._queues(topic)
        offsets = await together(self._committed(group, queue) for queue in queues)
        return dict(zip(queues, offsets, strict=True))

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """Queues that are written to or still read: a topic that shrinks has more of one kind."""
        route = await self._cluster.route(topic)
        return sorted(
            MessageQueue(topic=topic, broker_name=one.broker_name, queue_id=number)
            for one in route.queue_datas
            for number in range(max(one.read_queue_nums, one.write_queue_nums))
        )

    async def _committed(self, group: str, queue: MessageQueue) -> int | None:
        """Unlike a consumer, we do not want to be told 0 for "nothing, begin at 0"."""
        header = QueryConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        address = await self._cluster.master(queue.broker_name)
        try:
            answer = await self._cluster.session.call(
                address, RequestCode.QUERY_CONSUMER_OFFSET, header
            )
        except QueryNotFound:
            return None
        offset = QueryConsumerOffsetReply.from_ext(answer.ext).offset
        return offset if offset >= 0 else None

    # --- giving one group another's place ---------------------------------------------------

    async def clone(self, source: str, target: str, topic: str | None) -> dict[MessageQueue, int]:
        """Commit for a group what another has committed; what that was."""
        if topic is None:
            stats = await self._stats(source, None)
            topics = {queue.topic for one in stats for queue in one.offset_table}
        else:
            topics = {topic}
        found: dict[MessageQueue, int] = {}
        for name in sorted(topics):
            offsets = await self.committed(source, name)
            found |= {queue: offset for queue, offset in offsets.items() if offset is not None}
        if not found:
            raise QueryNotFound(
                f"group {source} has committed nothing in topic {topic}"
                if topic
                else f"group {source} has committed nothing"
            )
        await self._groups.configs(target)  # else some brokers would take it and others not
        await self._commit(target, found)
        return found

    async def _commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        for name in {queue.broker_name for queue in offsets}:
            await self._cluster.master(name)
        await together(
            self._cluster.calls.commit_offset(group, queue, offset, wait=True)
            for queue, offset in offsets.items()
        )

    # --- moving a group ---------------------------------------------------------------------

    async def reset(
        self, group: str, topic: str, to: ResetTarget, *, force: bool, dry_run: bool
    ) -> OffsetReset:
        check_target(to)
        await self._groups.configs(group)  # a wrong name would move nobody, in silence
        plan = await self._plan(group, topic, to, force=force)
        if not dry_run:
            moved = [one for one in plan if not one.kept]
            for name in sorted({one.queue.broker_name for one in moved}):
                own = [one for one in moved if one.queue.broker_name == name]
                await self._move(group, topic, to, own, force=force)
        shown = self._cluster.shown
        return OffsetReset(
            group=self._cluster.session.unwrap(group),
            topic=self._cluster.session.unwrap(topic),
            queues=tuple(replace(one, queue=shown(one.queue)) for one in plan),
            dry_run=dry_run,
        )

    async def _plan(
        self, group: str, topic: str, to: ResetTarget, *, force: bool
    ) -> list[QueueReset]:
        queues = await self._queues(topic)
        if isinstance(to, Mapping):
            strangers = set(to) - set(queues)
            if strangers:
                raise InvalidRequest(
                    f"topic {topic} does not have {sorted(strangers)[0]}; it has "
                    f"{len(queues)} queues"
                )
            queues = sorted(to)
        return await together(self._plan_queue(group, queue, to, force=force) for queue in queues)

    async def _plan_queue(
        self, group: str, queue: MessageQueue, to: ResetTarget, *, force: bool
    ) -> QueueReset:
        calls = self._cluster.calls
        await self._cluster.master(queue.broker_name)
        least, most = await calls.min_offset(queue), await calls.max_offset(queue)
        if isinstance(to, Mapping):
            wanted = to[queue]
            if not least <= wanted <= most:
                raise InvalidRequest(
                    f"offset {wanted} is not in queue {queue.queue_id} of broker "
                    f"{queue.broker_name}: it has {least} to {most}"
                )
        elif to == "earliest":
            wanted = least
        elif to == "latest":
            wanted = most
        else:
            assert isinstance(to, int)
            wanted = await calls.offset_at(queue, to)
        return plan_queue(
            queue,
            committed=await self._committed(group, queue),
            wanted=wanted,
            ends=(least, most),
            force=force,
        )

    async def _move(
        self, group: str, topic: str, to: ResetTarget, plan: Sequence[QueueReset], *, force: bool
    ) -> None:
        """Carry out a plan on one broker."""
        address = await self._cluster.master(plan[0].queue.broker_name)
        config = await self._cluster.broker_config(address)
        if config.get(SERVER_SIDE_RESET, "").lower() == "true":
            for one in plan:
                header = ResetOffsetRequest(
                    group=group,
                    topic=topic,
                    timestamp=EARLIEST_MS,
                    is_force=True,
                    queue_id=one.queue.queue_id,
                    offset=one.target,
                )
                await self._ask_to_reset(address, header)
            return
        if isinstance(to, Mapping):
            if await self._groups.is_running(group):
                raise ResetImpossible(
                    f"group {group} is running, and broker {plan[0].queue.broker_name} moves "
                    "running groups by time only, not to offsets of single queues"
                )
        else:
            time_ms = to if isinstance(to, int) else EARLIEST_MS
            header = ResetOffsetRequest(
                group=group,
                topic=topic,
                timestamp=LATEST_MS if to == "latest" else time_ms,
                is_force=force,
            )
            if await self._move_running(address, header):
                return
        await self._commit(group, {one.queue: one.target for one in plan})

    async def _move_running(self, address: str, header: ResetOffsetRequest) -> bool:
        """The old way; False if nobody runs who could be told."""
        try:
            await self._ask_to_reset(address, header)
        except ConsumerNotOnline:
            return False
        except ServerFailed:  # also said of a stopped group that has committed too little
            if await self._groups.is_running(header.group):
                raise
            return False
        return True

    async def _ask_to_reset(self, address: str, header: ResetOffsetRequest) -> None:
        await self._cluster.session.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def check_target(to: object) -> None:
    """InvalidRequest unless it says where to go."""
    if isinstance(to, Mapping):
        if not to:
            raise InvalidRequest("no queue is given that should be reset")
        for queue, offset in to.items():
            if not isinstance(queue, MessageQueue) or not isinstance(offset, int):
                raise InvalidRequest(f"{queue!r}: {offset!r}; a MessageQueue and an offset wanted")
    elif isinstance(to, bool) or not (
        to in {"earliest", "latest"} if isinstance(to, str) else isinstance(to, int) and to >= 0
    ):
        raise InvalidRequest(
            f"reset to {to!r}: a time in milliseconds since 1970, 'earliest', 'latest', or "
            "offsets by queue are possible"
        )


def stats_of(broker: str, progress: GroupProgress) -> ConsumeStats:
    """The short form at length."""
    table: ObjectMap[MessageQueue, OffsetWrapper] = ObjectMap()
    for topic, queue_id, end, committed, pulled, stored_ms in progress.queues:
        queue = MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)
        table[queue] = OffsetWrapper(
            broker_offset=end,
            consumer_offset=committed,
            pull_offset=pulled,
            last_timestamp=stored_ms,
        )
    return ConsumeStats(offset_table=table, consume_tps=progress.consume_tps)
