"""What leaves the timer: messages for their own topic, and those that go through it once more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from firearrow.broker.delays import readable_queue
from firearrow.hot import StoreMessage
from firearrow.model.errors import MessageIllegal
from firearrow.model.message import REAL_QUEUE_ID, REAL_TOPIC, TIMER_DEQUEUE_MS, TIMER_ENQUEUE_MS
from firearrow.model.topic import TIMER_TOPIC

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock
    from firearrow.broker.topic_table import TopicTable
    from firearrow.hot import Record
    from firearrow.store.store import MessageStore

log = logging.getLogger(__name__)


class TimerPuts:
    """Puts records again; an error of the store is the caller's to retry."""

    def __init__(self, store: MessageStore, topics: TopicTable, clock: Clock) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock

    def put_real(
        self, record: Record, properties: dict[str, str], enqueued_ms: int
    ) -> StoreMessage | None:
        """Deliver; None when the message is given up, because nobody would ever take it."""
        topic, queue_id = properties[REAL_TOPIC], properties.get(REAL_QUEUE_ID, "0")
        if not queue_id.isdecimal():
            log.error("timer message at %d has no destination", record.physical_offset)
            return None
        queue = readable_queue(self._topics, topic, int(queue_id))
        return self._put(record, topic, queue, properties, enqueued_ms)

    def put_back(
        self, record: Record, properties: dict[str, str], enqueued_ms: int
    ) -> StoreMessage | None:
        """Put into the timer's queue again."""
        return self._put(record, TIMER_TOPIC, record.queue_id, properties, enqueued_ms)

    def _put(
        self,
        record: Record,
        topic: str,
        queue_id: int,
        properties: dict[str, str],
        enqueued_ms: int,
    ) -> StoreMessage | None:
        properties[TIMER_ENQUEUE_MS] = str(enqueued_ms)
        properties[TIMER_DEQUEUE_MS] = str(self._clock.now_ms())
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        message = StoreMessage(
            topic,
            queue_id,
            record.body,
            text.encode(),
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_ip + record.born_port.to_bytes(4, "big"),
            store_host=record.store_ip + record.store_port.to_bytes(4, "big"),
            reconsume_times=record.reconsume_times,
        )
        try:
            self._store.put(message)
        except MessageIllegal as error:
            # It would never be taken, and all others would wait for it.
            log.error("timer message at %d is given up: %s", record.physical_offset, error)  # noqa: TRY400
            return None
        return message
