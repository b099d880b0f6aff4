"""What brokers pass on from administrators to a consumer: notices, resets, questions.

`mqadmin consumerStatus`, `resetOffsetByTime` and `queryMsgById -g -d` end here.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Final, Protocol

from firearrow.base.errors import RecordError
from firearrow.client.handlers import NOBODY, Work
from firearrow.client.message import ReceivedMessage
from firearrow.client.window import Window
from firearrow.hot import decode_record
from firearrow.model.errors import ResponseCode
from firearrow.wire import java_json
from firearrow.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerStatusBody,
    ProcessQueueInfo,
    decode_reset_offset,
)
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, reply_to
from firearrow.wire.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)
from firearrow.wire.java_json import ObjectMap

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.client.consumer_state import ConsumerState
    from firearrow.client.handlers import Outcome
    from firearrow.model.topic import MessageQueue
    from firearrow.net.connection import Connection

log = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
RESET_SETTLE_MS: Final = 1_000  # for handlers that are at work; Java waits ten times as long


class Consumption(Protocol):
    async def consume_now(self, work: Work) -> Outcome: ...


class Questions:
    """Answers for one consumer."""

    def __init__(
        self,
        state: ConsumerState,
        consumption: Consumption | None,  # None: the application polls, there is no handler
        rebalance_soon: Callable[[], None],
    ) -> None:
        self._state = state
        self._consumption = consumption
        self._rebalance_soon = rebalance_soon

    def register(self) -> None:
        """Before the session starts."""
        handle = self._state.session.handle
        handle(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        if self._consumption is not None:  # who polls seeks; a reset would fight with that
            handle(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        handle(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._offsets)
        handle(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        handle(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    def _members_changed(self, _: Command, __: Connection) -> None:
        self._rebalance_soon()

    # --- reset ------------------------------------------------------------------------------

    def _reset(self, command: Command, _: Connection) -> None:
        header = ResetOffsetRequest.from_ext(
            {"queueId": "-1", "offset": "-1", "isForce": "false"} | command.ext
        )
        table = dict(decode_reset_offset(command.body).offset_table)
        self._state.session.spawn(self._move(header.topic, table), name="reset-offsets")

    async def _move(self, topic: str, table: dict[MessageQueue, int]) -> None:
        """Forget what was pulled of these queues and go on at other offsets."""
        state = self._state
        log.info("group %s: offsets of %s are reset: %s", state.group, topic, table)
        state.resets += 1
        try:
            moved = [queue for queue in table if queue in state.windows]
            for queue in moved:
                state.windows[queue].drop()
            await state.clock.sleep(RESET_SETTLE_MS)
            for queue in moved:
                state.offsets.memory[queue] = table[queue]
            await state.offsets.save(moved, wait=True)
            for queue in moved:
                state.offsets.memory.pop(queue, None)
                if (window := state.windows.pop(queue, None)) is not None:
                    window.drop()  # a round that was under way may have made another one
        finally:
            state.resets -= 1
        self._rebalance_soon()

    # --- questions --------------------------------------------------------------------------

    def _offsets(self, command: Command, _: Connection) -> Command:
        header = GetConsumerStatusRequest.from_ext(command.ext)
        table: ObjectMap[MessageQueue, int] = ObjectMap(
            (queue, self._state.offsets.memory.get(queue, window.next_offset))
            for queue, window in self._state.windows.items()
            if queue.topic == header.topic
        )
        body = GetConsumerStatusBody(message_queue_table=table)
        return reply_to(command, body=java_json.encode(body))

    def _running_info(self, command: Command, _: Connection) -> Command:
        header = GetConsumerRunningInfoRequest.from_ext(command.ext)
        if header.consumer_group != self._state.wire_group:
            remark = f"group {header.consumer_group} is not consumed here"
            return reply_to(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        info = self.running_info(with_stacks=bool(header.jstack_enable))
        return reply_to(command, body=java_json.encode(info))

    def running_info(self, *, with_stacks: bool = False) -> ConsumerRunningInfo:
        """How this consumer is doing, in the words of `mqadmin consumerStatus`."""
        state = self._state
        return ConsumerRunningInfo(
            properties=self._properties(),
            subscription_set=tuple(one.data for one in state.subscriptions.values()),
            mq_table=ObjectMap(
                (queue, self._queue_info(window)) for queue, window in state.windows.items()
            ),
            mq_pop_table=ObjectMap(),
            status_table={topic: self._status(topic) for topic in state.subscriptions},
            user_consumer_info={},
            jstack=_stacks() if with_stacks else None,
        )

    def _properties(self) -> dict[str, str]:
        state = self._state
        settings = state.settings
        return {
            "consumerGroup": state.wire_group,
            "messageModel": settings.message_model.value,
            "consumeFromWhere": settings.consume_from_where.value,
            "consumeThreadMin": str(settings.workers_max),
            "consumeThreadMax": str(settings.workers_max),
            "pullBatchSize": str(settings.pull_batch),
            "pullThresholdForQueue": str(state.limits.messages_max),
            "pullThresholdSizeForQueue": str(state.limits.bytes_max // MIB),
            "consumeConcurrentlyMaxSpan": str(state.limits.span_max),
            "maxReconsumeTimes": str(settings.max_reconsume_times),
            "PROP_NAMESERVER_ADDR": ";".join(state.session.names.addresses),
            "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY" if settings.lite else "CONSUME_PASSIVELY",
            "PROP_CLIENT_VERSION": "V5_3_3",
            "PROP_CONSUMEORDERLY": "true" if settings.ordered else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(settings.workers_max),
            "PROP_CONSUMER_START_TIMESTAMP": str(state.started_ms),
        }

    def _queue_info(self, window: Window) -> ProcessQueueInfo:
        offsets = list(window.waiting)
        taken = window.consuming
        return ProcessQueueInfo(
            commit_offset=self._state.offsets.memory.get(window.queue, window.next_offset),
            cached_msg_min_offset=offsets[0] if offsets else 0,
            cached_msg_max_offset=offsets[-1] if offsets else 0,
            cached_msg_count=window.count,
            cached_msg_size_in_mib=window.bytes // MIB,
            transaction_msg_min_offset=taken[0].queue_offset if taken else 0,
            transaction_msg_max_offset=taken[-1].queue_offset if taken else 0,
            transaction_msg_count=len(taken),
            locked=window.locked,
            try_unlock_times=window.unlock_tries,
            last_lock_timestamp=window.last_lock_ms,
            droped=window.dropped,
            last_pull_timestamp=window.last_pull_ms,
            last_consume_timestamp=window.last_consume_ms,
        )

    def _status(self, topic: str) -> ConsumeStatus:
        rates = self._state.rates_of(topic)
        consumed_tps, consume_rt = rates.consumed.read()
        return ConsumeStatus(
            pull_rt=rates.pulls.read()[1],
            pull_tps=rates.pulled.read()[0],
            consume_rt=consume_rt,
            consume_ok_tps=consumed_tps,
            consume_failed_tps=rates.failed.read()[0],
            consume_failed_msgs=rates.failed.total(),
        )

    # --- one message, now -------------------------------------------------------------------

    async def _consume_directly(self, command: Command, _: Connection) -> Command:
        header = ConsumeMessageDirectlyRequest.from_ext(command.ext)
        if self._consumption is None:
            remark = "this consumer polls; it has no handler to give a message to"
            return reply_to(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        try:
            record = decode_record(command.body)
        except RecordError as error:
            return reply_to(command, ResponseCode.SYSTEM_ERROR, remark=str(error))
        state = self._state
        message = ReceivedMessage(record, header.broker_name or "")
        handler = state.handler_for(message) or NOBODY
        window = Window(message.queue, message.queue_offset, state.clock.now_ms())
        started_ms = state.clock.elapsed_ms()
        outcome = await self._consumption.consume_now(Work(window, [message], handler))
        result = ConsumeResult.CR_SUCCESS
        if outcome.kind == "EXCEPTION":
            result = ConsumeResult.CR_THROW_EXCEPTION
        elif outcome.kind != "SUCCESS":
            result = ConsumeResult.CR_LATER
        body = ConsumeMessageDirectlyResult(
            order=state.settings.ordered,
            consume_result=result,
            remark=None if outcome.error is None else repr(outcome.error),
            spent_time_mills=state.clock.elapsed_ms() - started_ms,
        )
        return reply_to(command, body=java_json.encode(body))


def _stacks() -> str:
    """Where every thread and task is, as Java's jstack would say."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the documented way
        lines = "".join(traceback.format_stack(frame))
        parts.append(f'"{names.get(ident, ident)}"\n{lines}')
    for task in asyncio.all_tasks():
        frames = task.get_stack(limit=8)
        lines = "".join(
            traceback.format_list(traceback.extract_stack(frames[-1])) if frames else []
        )
        parts.append(f"task {task.get_name()}\n{lines}")
    return "\n".join(parts)
