"""Where queues begin and end, and how far groups are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.model.errors import QueryNotFound, SubscriptionGroupNotFound, TopicNotFound
from firearrow.wire import headers
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from firearrow.broker.state import BrokerState
    from firearrow.net.connection import Connection


class OffsetsProcessor:
    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handle_query(self, command: Command, _: Connection) -> Command:
        """What a group has committed; 22 sends a consumer to its own idea of where to start."""
        asked = headers.QueryConsumerOffsetRequest.from_ext(command.ext)
        state = self._state
        offset = state.offsets.committed(asked.topic, asked.consumer_group, asked.queue_id)
        if offset < 0:
            least = state.store.lookup.min_offset(asked.topic, asked.queue_id)
            # A young queue is read from its beginning, whatever the consumer's default.
            if asked.set_zero_if_not_found is False or least > 0 or self._is_cold(asked):
                raise QueryNotFound(
                    f"group {asked.consumer_group} has committed nothing in queue "
                    f"{asked.queue_id} of topic {asked.topic}"
                )
            offset = 0
        return reply_to(command, header=headers.QueryConsumerOffsetReply(offset=offset))

    def _is_cold(self, asked: headers.QueryConsumerOffsetRequest) -> bool:
        return self._state.store.warming.is_cold(asked.topic, asked.queue_id, 0)

    def handle_update(self, command: Command, _: Connection) -> Command:
        asked = headers.UpdateConsumerOffsetRequest.from_ext(command.ext)
        state = self._state
        if state.groups.find(asked.consumer_group) is None:
            raise SubscriptionGroupNotFound(
                f"group {asked.consumer_group} does not exist; create it"
            )
        if state.topics.get(asked.topic) is None:
            raise TopicNotFound(f"topic {asked.topic} does not exist")
        committed = state.offsets.commit(
            asked.topic, asked.consumer_group, asked.queue_id, asked.commit_offset
        )
        remark = None if committed else "a reset of this offset is pending; the commit is ignored"
        return reply_to(command, remark=remark)

    def handle_max(self, command: Command, _: Connection) -> Command:
        asked = headers.GetMaxOffsetRequest.from_ext(command.ext)
        offset = self._state.store.lookup.max_offset(asked.topic, asked.queue_id)
        return reply_to(command, header=headers.GetMaxOffsetReply(offset=offset))

    def handle_min(self, command: Command, _: Connection) -> Command:
        asked = headers.GetMinOffsetRequest.from_ext(command.ext)
        offset = self._state.store.lookup.min_offset(asked.topic, asked.queue_id)
        return reply_to(command, header=headers.GetMinOffsetReply(offset=offset))

    def handle_search(self, command: Command, _: Connection) -> Command:
        asked = headers.SearchOffsetRequest.from_ext(command.ext)
        offset = self._state.store.lookup.offset_by_time(
            asked.topic,
            asked.queue_id,
            asked.timestamp,
            upper=asked.boundary_type is headers.BoundaryType.UPPER,
        )
        return reply_to(command, header=headers.SearchOffsetReply(offset=offset))

    def handle_earliest(self, command: Command, _: Connection) -> Command:
        asked = headers.GetEarliestMsgStoretimeRequest.from_ext(command.ext)
        timestamp = self._state.store.lookup.earliest_store_time(asked.topic, asked.queue_id)
        return reply_to(command, header=headers.GetEarliestMsgStoretimeReply(timestamp=timestamp))
