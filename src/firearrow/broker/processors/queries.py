"""Finding messages: by key, by id, and entry by entry in a consume queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.broker.filtering import wanted_records
from firearrow.broker.processors.common import json_reply, raw_message
from firearrow.model.errors import InvalidParameter, ResponseCode, ServerFailed
from firearrow.net.router import REPLY_BODY_BYTES_MAX
from firearrow.store.consume_queue import ENTRY
from firearrow.wire import bodies, headers
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from firearrow.broker.state import BrokerState
    from firearrow.model.group import SubscriptionData
    from firearrow.net.connection import Connection
    from firearrow.store.consume_queue import ConsumeQueue

MESSAGES_MAX: Final = 64  # of one answer by key
UNIQUE_KEY_MESSAGES_MAX: Final = 32  # a key that should be there once
ENTRIES_MAX: Final = 1_000  # of one answer about a consume queue


class QueryProcessor:
    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handle_by_key(self, command: Command, _: Connection) -> Command:
        """Messages with a key; 22 carries the header too, since clients read it either way."""
        asked = headers.QueryMessageRequest.from_ext(command.ext)
        if asked.max_num <= 0:
            raise InvalidParameter(f"maxNum is {asked.max_num}; at least 1 message must be wanted")
        limit = min(asked.max_num, MESSAGES_MAX)
        if asked.unique_key_query:
            limit = UNIQUE_KEY_MESSAGES_MAX
        lookup = self._state.store.lookup
        found = lookup.by_key(
            asked.topic,
            asked.key,
            limit=limit,
            begin_ms=asked.begin_timestamp,
            end_ms=asked.end_timestamp,
        )
        body = bytearray()
        for record in found:
            raw = lookup.raw_at(record.physical_offset)
            if raw is not None and len(body) + len(raw) <= REPLY_BODY_BYTES_MAX:
                body += raw
        last_ms, last_offset = lookup.index_end() if body else (0, 0)
        header = headers.QueryMessageReply(
            index_last_update_timestamp=last_ms, index_last_update_phyoffset=last_offset
        )
        if not body:
            remark = "no message with this key was stored in this time"
            return reply_to(command, ResponseCode.QUERY_NOT_FOUND, header, remark=remark)
        return reply_to(command, header=header, body=bytes(body))

    def handle_by_id(self, command: Command, _: Connection) -> Command:
        asked = headers.ViewMessageRequest.from_ext(command.ext)
        return reply_to(command, body=raw_message(self._state, asked.offset))

    def handle_consume_queue(self, command: Command, _: Connection) -> Command:
        """Entries of a queue, and whether a group's filter lets each through."""
        asked = headers.QueryConsumeQueueRequest.from_ext(command.ext)
        queue = self._state.store.queue(asked.topic, asked.queue_id)
        if queue is None:
            raise ServerFailed(f"{asked.queue_id}@{asked.topic} is not exist!")
        if not queue.min_offset <= asked.index < max(queue.max_offset, 1):
            raise ServerFailed(
                f"Index {asked.index} of {asked.queue_id}@{asked.topic} is not exist! It has "
                f"{queue.min_offset} to {queue.max_offset - 1}"
            )
        subscription, note = self._subscription(asked.consumer_group, asked.topic)
        return json_reply(
            command,
            bodies.QueryConsumeQueueBody(
                subscription_data=subscription,
                filter_data=note,
                queue_data=tuple(
                    entries(
                        queue,
                        asked.index,
                        min(asked.count, ENTRIES_MAX),
                        self._filter(asked.consumer_group, subscription),
                    )
                ),
                max_queue_index=queue.max_offset,
                min_queue_index=queue.min_offset,
            ),
        )

    def _subscription(
        self, group_name: str | None, topic: str
    ) -> tuple[SubscriptionData | None, str | None]:
        if not group_name:
            return None, None
        group = self._state.clients.group(group_name)
        subscription = None if group is None else group.subscriptions.get(topic)
        if subscription is None:
            return None, f"no member of group {group_name} that subscribes to {topic} is connected"
        known = self._state.filters.get(topic, group_name)
        if known is None:
            return subscription, "null"
        return subscription, f"{known.expression_type}: {known.expression}"

    def _filter(
        self, group: str | None, subscription: SubscriptionData | None
    ) -> Callable[[int, int, int], bool]:
        """Whether a group gets the message of an entry: by its place, size and tag hash."""
        if subscription is None or group is None:
            return lambda *_: False
        codes = subscription.tag_codes
        if codes is not None:
            return lambda _place, _size, code: code in codes
        known = self._state.filters.get(subscription.topic, group)
        if known is None:
            return lambda *_: True
        matches, read = wanted_records(known.filter), self._state.store.lookup.slice_at

        def look(place: int, size: int, _: int) -> bool:
            record = read(place, size)
            return record is not None and matches(record)

        return look


def entries(
    queue: ConsumeQueue, offset: int, count: int, fits: Callable[[int, int, int], bool]
) -> Iterator[bodies.ConsumeQueueData]:
    while count > 0 and (raw := queue.entries(offset, count)):
        for physical, size, code in ENTRY.iter_unpack(raw):
            yield bodies.ConsumeQueueData(
                physic_offset=physical,
                physic_size=size,
                tags_code=code,
                eval=fits(physical, size, code),
            )
        read = len(raw) // ENTRY.size
        offset += read
        count -= read
