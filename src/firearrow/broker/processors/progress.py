"""How far groups are: consumed, behind, and since when; and giving one group another's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.broker.delays import DelayOffsets
from firearrow.broker.processors.common import json_reply, known_topic, message_queue
from firearrow.model.topic import DataVersion
from firearrow.wire import bodies, headers
from firearrow.wire.command import Command, reply_to
from firearrow.wire.java_json import ObjectMap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.broker.state import BrokerState
    from firearrow.model.topic import MessageQueue, TopicConfig
    from firearrow.net.connection import Connection

LONG_MAX: Final = (1 << 63) - 1


class ProgressProcessor:
    def __init__(self, state: BrokerState) -> None:
        self._state = state

    # --- offsets of one group ---------------------------------------------------------------

    def handle_stats(self, command: Command, _: Connection) -> Command:
        """Every queue that a group reads: where it ends, and how far the group is."""
        asked = headers.GetConsumeStatsRequest.from_ext(command.ext)
        wanted = [name for name in (asked.topic_list or "").split(";") if name]
        if asked.topic:
            wanted.append(asked.topic)
        topics = wanted or self._state.offsets.topics_of(asked.consumer_group)
        return json_reply(command, self._stats(asked.consumer_group, self._read_by(asked, topics)))

    def _read_by(
        self, asked: headers.GetConsumeStatsRequest, names: Iterable[str]
    ) -> list[TopicConfig]:
        """Topics that exist; of a group that is here, only those that it still subscribes to."""
        state = self._state
        group = state.clients.group(asked.consumer_group)
        found = []
        for name in dict.fromkeys(names):
            topic = state.topics.get(name)
            gone = group is not None and group.subscriptions and name not in group.subscriptions
            if topic is not None and not gone:
                found.append(topic)
        return found

    def _stats(self, group: str, topics: Iterable[TopicConfig]) -> bodies.ConsumeStats:
        table: ObjectMap[MessageQueue, bodies.OffsetWrapper] = ObjectMap()
        tps = 0.0
        for topic in topics:
            name = topic.topic_name
            tps += self._state.statistics.tps("GROUP_GET_NUMS", f"{name}@{group}")
            for queue_id in range(topic.read_queue_nums):
                table[message_queue(self._state, name, queue_id)] = self._place(
                    name, group, queue_id
                )
        return bodies.ConsumeStats(offset_table=table, consume_tps=tps)

    def _place(self, topic: str, group: str, queue_id: int) -> bodies.OffsetWrapper:
        lookup, offsets = self._state.store.lookup, self._state.offsets
        consumed = max(0, offsets.committed(topic, group, queue_id))
        last_ms = lookup.store_time(topic, queue_id, consumed - 1) if consumed > 0 else 0
        return bodies.OffsetWrapper(
            broker_offset=lookup.max_offset(topic, queue_id),
            consumer_offset=consumed,
            pull_offset=max(consumed, offsets.pulled(topic, group, queue_id)),
            last_timestamp=max(0, last_ms),
        )

    def handle_broker_stats(self, command: Command, _: Connection) -> Command:
        """The same of all groups, topic by topic; `isOrder` leaves only ordered topics."""
        asked = headers.GetBrokerConsumeStatsRequest.from_ext(command.ext)
        state = self._state
        found = []
        behind = in_flight = 0
        for group in state.groups.all():
            stats = []
            for name in sorted(state.offsets.topics_of(group)):
                topic = state.topics.get(name)
                if topic is None or (asked.is_order and not topic.order):
                    continue
                one = self._stats(group, [topic])
                stats.append(one)
                for place in one.offset_table.values():
                    behind += max(0, place.broker_offset - place.consumer_offset)
                    in_flight += max(0, (place.pull_offset or 0) - place.consumer_offset)
            found.append({group: tuple(stats)})
        return json_reply(
            command,
            bodies.ConsumeStatsList(
                consume_stats_list=tuple(found),
                broker_addr=state.registration.address,
                total_diff=behind,
                total_inflight_diff=in_flight,
            ),
        )

    def handle_all(self, command: Command, _: Connection) -> Command:
        """The same in our own form: objects as keys take a second to read for a thousand groups."""
        state = self._state
        found = {}
        for group in state.groups.all():
            names = sorted(state.offsets.topics_of(group))
            stats = self._stats(group, filter(None, map(state.topics.get, names)))
            found[group] = bodies.GroupProgress(
                consume_tps=stats.consume_tps,
                queues=tuple(
                    (
                        *(queue.topic, queue.queue_id, place.broker_offset),
                        *(place.consumer_offset, place.pull_offset or 0, place.last_timestamp),
                    )
                    for queue, place in stats.offset_table.items()
                ),
            )
        return json_reply(command, found)

    def handle_time_span(self, command: Command, _: Connection) -> Command:
        """When the oldest, the newest and the last consumed message of each queue were stored."""
        asked = headers.QueryConsumeTimeSpanRequest.from_ext(command.ext)
        topic = known_topic(self._state, asked.topic)
        spans = tuple(
            self._span(asked.topic, asked.group, queue_id)
            for queue_id in range(topic.read_queue_nums)
        )
        return json_reply(command, bodies.QueryConsumeTimeSpanBody(consume_time_span_set=spans))

    def _span(self, topic: str, group: str, queue_id: int) -> bodies.QueueTimeSpan:
        lookup = self._state.store.lookup
        most = lookup.max_offset(topic, queue_id)
        consumed = self._state.offsets.committed(topic, group, queue_id)
        oldest_ms = lookup.earliest_store_time(topic, queue_id)
        consumed_ms = (
            lookup.store_time(topic, queue_id, consumed - 1) if consumed > 0 else oldest_ms
        )
        delay_ms = 0
        if max(consumed, 0) < most:
            next_ms = lookup.store_time(topic, queue_id, max(consumed, 0))
            delay_ms = self._state.clock.now_ms() - next_ms if next_ms > 0 else 0
        return bodies.QueueTimeSpan(
            message_queue=message_queue(self._state, topic, queue_id),
            min_time_stamp=oldest_ms,
            max_time_stamp=lookup.store_time(topic, queue_id, most - 1) if most > 0 else -1,
            consume_time_stamp=consumed_ms,
            delay_time=max(0, delay_ms),
        )

    # --- offsets of several groups ----------------------------------------------------------

    def handle_correction(self, command: Command, _: Connection) -> Command:
        """How far the slowest of the other groups is, by queue; the largest number says that
        the compared group is slower than all of them.
        """  # noqa: D205 - one thought
        asked = headers.QueryCorrectionOffsetRequest.from_ext(command.ext)
        offsets, lookup = self._state.offsets, self._state.store.lookup
        left_out = {name for name in (asked.filter_groups or "").split(",") if name}
        least: dict[int, int] = {}
        for group in offsets.groups_of(asked.topic):
            if group in left_out:
                continue
            for queue_id, offset in offsets.offsets(asked.topic, group).items():
                if offset >= lookup.min_offset(asked.topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in offsets.offsets(asked.topic, asked.compare_group).items():
            if queue_id in least and least[queue_id] > offset:
                least[queue_id] = LONG_MAX
        body = bodies.QueryCorrectionOffsetBody(correction_offsets=least)
        return json_reply(command, body, bare_int_keys=True)

    def handle_clone(self, command: Command, _: Connection) -> Command:
        asked = headers.CloneGroupOffsetRequest.from_ext(command.ext)
        state = self._state
        topics = [asked.topic] if asked.topic else state.offsets.topics_of(asked.src_group)
        group = None if asked.offline else state.clients.group(asked.src_group)
        if group is not None and group.subscriptions:
            topics = [topic for topic in topics if topic in group.subscriptions]
        state.offsets.clone(
            asked.src_group,
            asked.dest_group,
            [topic for topic in topics if state.topics.get(topic)],
        )
        return reply_to(command)

    # --- whole tables, for slaves -----------------------------------------------------------

    def handle_all_offsets(self, command: Command, _: Connection) -> Command:
        offsets = self._state.offsets
        body = bodies.ConsumerOffsetWrapper(
            data_version=offsets.version, offset_table=offsets.snapshot()
        )
        return json_reply(command, body, bare_int_keys=True)

    def handle_all_delays(self, command: Command, _: Connection) -> Command:
        state = self._state
        levels = range(1, len(state.delays.levels_ms) + 1)
        body = DelayOffsets(
            data_version=DataVersion(timestamp=state.clock.now_ms()),
            offset_table={n: state.delays.offset(n) for n in levels if state.delays.offset(n) > 0},
            log_offset=state.store.statistics().end_offset,
        )
        return json_reply(command, body, bare_int_keys=True)
