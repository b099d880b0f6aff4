"""Which messages go into the timer when they are sent, and which are refused."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from firearrow.hot import StoreMessage
from firearrow.model.errors import MessageIllegal, ServerFailed
from firearrow.model.message import (
    BORN_TIMESTAMP,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from firearrow.model.timer import (
    RECALL_BODY,
    RECALL_TAG,
    delete_key,
    deliver_time,
    is_delete,
    slot_time,
)
from firearrow.model.topic import TIMER_TOPIC

if TYPE_CHECKING:
    from firearrow.broker.state import BrokerState
    from firearrow.model.timer import RecallHandle

_QUEUE_ID: Final = 0


def park_in_timer(
    state: BrokerState, topic: str, queue_id: int, properties: dict[str, str]
) -> tuple[str, int]:
    """Where a message with a delivery time waits; its own place goes into its properties.

    What is due already is stored where it belongs, at once.
    """
    config, now_ms = state.config, state.clock.now_ms()
    if not config.timer_wheel_enable:
        raise ServerFailed(
            "messages with a delivery time of their own are not enabled: timerWheelEnable is false"
        )
    deliver_ms = deliver_time(properties, now_ms)
    if deliver_ms <= now_ms:
        if is_delete(properties):
            raise MessageIllegal(
                f"timer message: the time of what is taken back, {deliver_ms}, is over"
            )
        return topic, queue_id
    max_ms = config.timer_max_delay_sec * 1_000
    if deliver_ms - now_ms > max_ms:
        raise MessageIllegal(
            f"timer message: a delay of {deliver_ms - now_ms} ms; the limit is {max_ms} ms "
            "(timerMaxDelaySec)"
        )
    slot_ms = slot_time(deliver_ms, config.timer_precision_ms)
    refuse_crowded(
        state.timers.waiting_in(slot_ms), config.timer_congest_num_each_slot, random.random()
    )
    properties[TIMER_OUT_MS] = str(slot_ms)
    properties[REAL_TOPIC] = topic
    properties[REAL_QUEUE_ID] = str(queue_id)
    return TIMER_TOPIC, _QUEUE_ID


def put_recall(
    state: BrokerState, handle: RecallHandle, producer_group: str, born_host: bytes
) -> int:
    """Store the message that takes another one back. It counts at once.

    Returns the end of the log: up to there it must be on disk to be safe.
    """
    now_ms, key = state.clock.now_ms(), delete_key(handle.topic, handle.unique_key)
    properties = {
        TAGS: RECALL_TAG,
        TIMER_DEL_UNIQKEY: key,
        UNIQ_KEY: handle.unique_key,
        TIMER_DELIVER_MS: str(handle.time_ms),
        BORN_TIMESTAMP: str(now_ms),
    }
    if producer_group:
        properties[PRODUCER_GROUP] = producer_group
    topic, queue_id = park_in_timer(state, handle.topic, _QUEUE_ID, properties)
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    message = StoreMessage(
        topic, queue_id, RECALL_BODY, text.encode(), born_timestamp=now_ms, born_host=born_host
    )
    end = state.store.put(message)
    state.timers.recalls.note(key, message.queue_offset)
    return end


def refuse_crowded(waiting: int, limit: int, chance: float) -> None:
    """From a limit on some messages for a slot are refused, from twice of it on all.

    `chance` is between 0 and 1.
    """
    if waiting > limit and (waiting >= 2 * limit or chance < (waiting - limit) / limit):
        raise ServerFailed(
            f"{waiting} messages wait for the same moment; refused from {limit} on now and then, "
            f"and from {2 * limit} on always (timerCongestNumEachSlot): choose another moment"
        )
