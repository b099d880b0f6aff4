"""Messages in the timer: taking one back, listing them, how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.broker.config import BrokerRole
from firearrow.broker.express import born_host_of
from firearrow.broker.processors.common import json_reply
from firearrow.broker.slave_sync import WITH_NOTE
from firearrow.broker.timer_admission import put_recall
from firearrow.broker.timer_listing import TimerListing
from firearrow.model.errors import BrokerError, InvalidParameter, ResponseCode, ServerFailed
from firearrow.model.timer import RecallHandle
from firearrow.model.topic import Perm, is_retry_topic
from firearrow.store.timer_checkpoint import NOTE_BYTES
from firearrow.wire import headers
from firearrow.wire.codes import Flag
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from firearrow.broker.state import BrokerState
    from firearrow.net.connection import Connection


class TimerProcessor:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._reply_extra = {"MSG_REGION": state.config.region_id}

    # --- taking back ------------------------------------------------------------------------

    def handle_recall(self, command: Command, connection: Connection) -> Command | None:
        """Take a message back that waits for its time; the answer comes when that is safe."""
        asked = headers.RecallMessageRequest.from_ext(command.ext)
        state = self._state
        refusal = self._refusal(asked.topic)
        if refusal is not None:
            return self._answer(command, *refusal)
        try:
            handle = self._handle(asked)
        except ValueError as error:
            return self._answer(command, ResponseCode.ILLEGAL_OPERATION, str(error))
        try:
            end = put_recall(state, handle, asked.producer_group or "", born_host_of(connection))
        except BrokerError as error:
            return self._answer(command, ResponseCode.SYSTEM_ERROR, str(error))
        reply = self._answer(command, ResponseCode.SUCCESS, None)
        reply.ext["msgId"] = handle.unique_key
        if not state.disk_waits.waits or command.flag & Flag.ONEWAY:
            return reply
        connection.begin()

        def tell(_: int) -> None:
            connection.send_soon(reply)  # late or not: it counts already, as a sent message does
            connection.finish()

        state.disk_waits.answer_when_stored(end, tell)
        return None

    def _refusal(self, topic: str) -> tuple[ResponseCode, str] | None:
        """Why nothing is taken back here, if so."""
        config = self._state.config
        if not config.recall_message_enable:
            return (
                ResponseCode.NO_PERMISSION,
                "messages cannot be taken back: recallMessageEnable is false",
            )
        if config.broker_role is BrokerRole.SLAVE:
            return ResponseCode.SLAVE_NOT_AVAILABLE, "a slave takes nothing back; ask the master"
        if not config.broker_permission & Perm.WRITE:
            return (
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"broker {config.broker_name} does not take messages",
            )
        if self._state.topics.get(topic) is None:
            return (
                ResponseCode.TOPIC_NOT_EXIST,
                f"broker {config.broker_name} has no topic {topic}",
            )
        return None

    def _handle(self, asked: headers.RecallMessageRequest) -> RecallHandle:
        """What a request wants back; ValueError if it is not to be had here, or not any more."""
        handle = RecallHandle.decode(asked.recall_handle)
        config = self._state.config
        if handle.topic != asked.topic or is_retry_topic(handle.topic):
            raise ValueError(f"the handle is for topic {handle.topic}, not for {asked.topic}")
        if handle.broker_name != config.broker_name:
            raise ValueError(
                f"the handle is for broker {handle.broker_name}; this is {config.broker_name}"
            )
        left_ms = handle.time_ms - self._state.clock.now_ms()
        if left_ms <= 0:
            raise ValueError(f"it is too late: the time of the message, {handle.time_ms}, has come")
        if left_ms >= config.timer_max_delay_sec * 1_000:
            raise ValueError(
                f"no message waits as long as until {handle.time_ms}: the limit is "
                f"{config.timer_max_delay_sec} s (timerMaxDelaySec)"
            )
        return handle

    def _answer(self, command: Command, code: int, remark: str | None) -> Command:
        reply = reply_to(command, code, remark=remark)
        reply.ext = dict(self._reply_extra)
        return reply

    # --- looking ----------------------------------------------------------------------------

    def handle_metrics(self, command: Command, _: Connection) -> Command:
        """How many messages of each topic wait."""
        return json_reply(command, self._state.timers.counts.snapshot())

    def handle_checkpoint(self, command: Command, _: Connection) -> Command:
        """How far the timer is: 56 bytes."""
        self._need_timer()
        checkpoint = self._state.timers.files.checkpoint
        if command.ext.get(WITH_NOTE) == "true":
            return reply_to(command, body=checkpoint.encode()[:NOTE_BYTES])
        return reply_to(command, body=checkpoint.fields)

    async def handle_list(self, command: Command, _: Connection) -> Command:
        """Ours: what waits of a topic, page by page."""
        self._need_timer()
        asked = headers.ListTimersRequest.from_ext(command.ext)
        if asked.max_count < 1:
            raise InvalidParameter(f"maxCount is {asked.max_count}: ask for one at least")
        listing = TimerListing(self._state, asked.topic, asked.max_count)
        page = await listing.read(asked.begin_timestamp, asked.cursor)
        return json_reply(command, page)

    def _need_timer(self) -> None:
        if not self._state.timers.is_enabled:
            raise ServerFailed("there is no timer: timerWheelEnable is false")
