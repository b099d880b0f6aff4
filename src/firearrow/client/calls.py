"""What consumers and Admin ask of brokers, one typed coroutine each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.model.errors import QueryNotFound, ResponseCode, error_for
from firearrow.wire import java_json
from firearrow.wire.bodies import (
    CheckClientRequestBody,
    ConsumerList,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.headers import (
    BoundaryType,
    ConsumerSendMsgBackRequest,
    GetConsumerListByGroupRequest,
    GetEarliestMsgStoretimeReply,
    GetEarliestMsgStoretimeRequest,
    GetMaxOffsetReply,
    GetMaxOffsetRequest,
    GetMinOffsetReply,
    GetMinOffsetRequest,
    PullFlag,
    PullMessageReply,
    PullMessageRequest,
    QueryConsumerOffsetReply,
    QueryConsumerOffsetRequest,
    SearchOffsetReply,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.client.session import Session
    from firearrow.model.group import SubscriptionData
    from firearrow.model.topic import MessageQueue

OFFSET_TIMEOUT_MS: Final = 5_000
LOCK_TIMEOUT_MS: Final = 1_000
SEND_BACK_TIMEOUT_MS: Final = 5_000
PULL_CODES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class Calls:
    """Requests to brokers, by queue or by address. Topics and groups are the wire's names."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # --- offsets ----------------------------------------------------------------------------

    async def committed_offset(
        self, group: str, queue: MessageQueue, *, exact: bool = False
    ) -> int | None:
        """How far a group has consumed; None if it has committed nothing.

        Unless told to be exact, brokers say 0 for nothing while they have a queue as a whole.
        """
        header = QueryConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False if exact else None,
        )
        address, _ = await self._session.find_replica(queue.broker_name, queue.topic, 0)
        try:
            answer = await self._session.call(
                address,
                RequestCode.QUERY_CONSUMER_OFFSET,
                header,
                timeout_ms=OFFSET_TIMEOUT_MS,
            )
        except QueryNotFound:
            return None
        return QueryConsumerOffsetReply.from_ext(answer.ext).offset

    async def commit_offset(
        self, group: str, queue: MessageQueue, offset: int, *, wait: bool = False
    ) -> None:
        """Say how far a group has consumed; one way unless somebody waits for it."""
        header = UpdateConsumerOffsetRequest(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        address, _ = await self._session.find_replica(queue.broker_name, queue.topic, 0)
        if wait:
            await self._session.call(
                address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=OFFSET_TIMEOUT_MS
            )
        else:
            command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=True)
            await self._session.invoke_oneway(address, command)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._ask_master(queue, RequestCode.GET_MAX_OFFSET, header)
        return GetMaxOffsetReply.from_ext(answer.ext).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that a queue still has."""
        header = GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._ask_master(queue, RequestCode.GET_MIN_OFFSET, header)
        return GetMinOffsetReply.from_ext(answer.ext).offset

    async def offset_at(
        self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """The offset of the first message stored at or after a time."""
        header = SearchOffsetRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type=BoundaryType.UPPER if upper else BoundaryType.LOWER,
        )
        answer = await self._ask_master(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return SearchOffsetReply.from_ext(answer.ext).offset

    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """When the oldest message of a queue was stored; -1 in an empty queue."""
        header = GetEarliestMsgStoretimeRequest(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._ask_master(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return GetEarliestMsgStoretimeReply.from_ext(answer.ext).timestamp

    async def _ask_master(self, queue: MessageQueue, code: RequestCode, header: object) -> Command:
        address = await self._session.find_master(queue.broker_name, queue.topic)
        return await self._session.call(address, code, header)  # type: ignore[arg-type]

    # --- pulling ----------------------------------------------------------------------------

    async def pull(
        self, address: str, header: PullMessageRequest, timeout_ms: int, *, lite: bool = False
    ) -> tuple[int, PullMessageReply, bytes]:
        """One pull: code, header and records as they came; raises what is not one of the four."""
        code = RequestCode.LITE_PULL_MESSAGE if lite else RequestCode.PULL_MESSAGE
        answer = await self._session.invoke(address, request(code, header), timeout_ms)
        if answer.code not in PULL_CODES:
            raise error_for(answer.code, answer.remark)
        return answer.code, PullMessageReply.from_ext(answer.ext), answer.body

    # --- groups -----------------------------------------------------------------------------

    async def members(self, group: str, topic: str) -> list[str]:
        """Client ids of a group, as one broker of the topic knows them."""
        route = await self._session.route(topic)
        failure: Exception | None = None
        for broker in route.data.broker_datas:
            found = self._session.brokers.replica(broker.broker_name)
            if found is None:
                continue
            header = GetConsumerListByGroupRequest(consumer_group=group)
            try:
                answer = await self._session.call(
                    found[0], RequestCode.GET_CONSUMER_LIST_BY_GROUP, header
                )
            except Exception as error:
                failure = error
                continue
            return list(java_json.decode(answer.body, ConsumerList).consumer_id_list)
        if failure is not None:
            raise failure
        return []

    async def lock(
        self, group: str, broker_name: str, queues: Sequence[MessageQueue]
    ) -> frozenset[MessageQueue]:
        """Lock queues of one broker for this client; which ones it has now."""
        body = LockBatchRequestBody(
            client_id=self._session.client_id, consumer_group=group, mq_set=tuple(queues)
        )
        address = await self._session.find_master(broker_name, queues[0].topic)
        answer = await self._session.call(
            address,
            RequestCode.LOCK_BATCH_MQ,
            body=java_json.encode(body),
            timeout_ms=LOCK_TIMEOUT_MS,
        )
        return frozenset(java_json.decode(answer.body, LockBatchResponseBody).lock_ok_mq_set)

    async def unlock(self, group: str, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        """Give queues of one broker back."""
        body = LockBatchRequestBody(
            client_id=self._session.client_id, consumer_group=group, mq_set=tuple(queues)
        )
        address = await self._session.find_master(broker_name, queues[0].topic)
        await self._session.call(
            address,
            RequestCode.UNLOCK_BATCH_MQ,
            body=java_json.encode(body),
            timeout_ms=LOCK_TIMEOUT_MS,
        )

    async def check_subscription(self, group: str, subscription: SubscriptionData) -> None:
        """Ask a broker whether it understands a filter; raises what it says against it."""
        route = await self._session.route(subscription.topic)
        body = CheckClientRequestBody(
            client_id=self._session.client_id, group=group, subscription_data=subscription
        )
        for broker in route.data.broker_datas[:1]:
            found = self._session.brokers.replica(broker.broker_name)
            if found is not None:
                await self._session.call(
                    found[0], RequestCode.CHECK_CLIENT_CONFIG, body=java_json.encode(body)
                )

    async def send_back(
        self, broker_name: str, topic: str, header: ConsumerSendMsgBackRequest
    ) -> None:
        """Return a message that could not be consumed; the broker delivers it again later."""
        address = await self._session.find_master(broker_name, topic)
        await self._session.call(
            address,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            header,
            timeout_ms=SEND_BACK_TIMEOUT_MS,
        )


__all__ = ["Calls", "PullFlag"]
