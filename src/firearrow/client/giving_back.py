"""Messages that could not be consumed: back to the broker, which brings them again later.

CONSUMER_SEND_MSG_BACK ── refused or lost ──▶ a new message to %RETRY%group
└── fails too ──▶ the consumer keeps it
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from firearrow.base.errors import FirearrowError
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
            return await self.send_anew(message)
        return True

    async def send_anew(self, message: ReceivedMessage) -> bool:
        """Send a copy to the retry topic; the broker knows from its counts what to do with it."""
        state = self._state
        copy = Message(state.retry_topic, message.body, flag=message.flag)
        copy.properties = dict(message.properties)
        for name in (names.TRAN_MSG, names.UNIQ_KEY):
            copy.properties.pop(name, None)
        properties = copy.properties
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.msg_id)
        properties[names.RETRY_TOPIC] = state.session.wrap(message.topic)
        properties[names.RECONSUME_TIME] = str(message.reconsume_times + 1)
        properties[names.MAX_RECONSUME_TIMES] = str(state.settings.reconsume_times_max)
        properties[names.DELAY] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        try:
            await self._producer.send(copy)
        except FirearrowError as error:
            log.warning("%s cannot be sent to its retry topic either: %s", message.msg_id, error)
            return False
        return True
