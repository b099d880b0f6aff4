"""Messages that could not be consumed: back to the broker, which brings them again later.

CONSUMER_SEND_MSG_BACK ── refused or lost ──▶ a new message to %RETRY%group
└── fails too ──▶ the consumer keeps it
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from firearrow.base.errors import FirearrowError
from firearrow.client.handlers import DEAD_LETTER_LEVEL
from firearrow.client.message import Message
from firearrow.model import message as names
from firearrow.wire.headers import ConsumerSendMsgBackRequest

if TYPE_CHECKING:
    from firearrow.client.consumer_state import ConsumerState
    from firearrow.client.message import ReceivedMessage
    from firearrow.client.producer import Producer

log = logging.getLogger(__name__)

FIRST_RETRY_LEVEL = 3  # of the delay levels: ten seconds


class GivingBack:
    """Returns messages, one way or the other."""

    def __init__(self, state: ConsumerState, producer: Producer) -> None:
        self._state = state
        self._producer = producer

    async def give_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Whether the broker has taken it; False means that it is still ours."""
        state = self._state
        topic = state.session.wrap(message.topic)
        header = ConsumerSendMsgBackRequest(
            offset=message.commit_log_offset,
            group=state.wire_group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=topic,
            max_reconsume_times=state.settings.reconsume_times_max,
        )
        try:
            await state.calls.send_back(message.broker_name, message.queue.topic, header)
        except FirearrowError as error:
            log.warning("%s is not taken back (%s); it is sent anew", message.msg_id, error)
            return await self.send_anew(message, delay_level)
        return True

    async def send_anew(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Send a copy to the retry topic; the broker knows from its counts what to do with it.

        The copy keeps the message's id. One that is to be a dead letter says that it has come
        again more often than it may.
        """
        state = self._state
        times, times_max = message.reconsume_times, state.settings.reconsume_times_max
        if delay_level == DEAD_LETTER_LEVEL:
            times_max = min(times, times_max)
        copy = Message(state.retry_topic, message.body, flag=message.flag)
        copy.properties = properties = dict(message.properties)
        properties.pop(names.TRAN_MSG, None)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.msg_id)
        properties[names.RETRY_TOPIC] = state.session.wrap(message.topic)
        properties[names.RECONSUME_TIME] = str(times + 1)
        properties[names.MAX_RECONSUME_TIMES] = str(times_max)
        level = delay_level if delay_level > 0 else FIRST_RETRY_LEVEL + times
        properties[names.DELAY] = str(level)
        try:
            await self._producer.send(copy)
        except FirearrowError as error:
            log.warning("%s cannot be sent to its retry topic either: %s", message.msg_id, error)
            return False
        return True
