"""What a write asks of the cluster: batches, half messages, and their ends.

Everything here runs on the loop that blocking clients share. While a broker is away, requests are
tried again until their time is up; the ones that only somebody else can judge come back as errors.

    request           our broker                       Apache's
    half messages     STAGE_BATCH, many in one         one SEND_MESSAGE_V2 each
    their ends        END_TRANSACTIONS, in one go      one END_TRANSACTION each, queue by queue
    said again        makes no second message          makes one: so queues are looked at first
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, Any, Final, TypeVar

from firearrow.base.errors import FirearrowError
from firearrow.client.calls import Calls
from firearrow.client.errors import NoRoute
from firearrow.client.sending import (
    Envelope,
    SendReceipt,
    SendStatus,
    receipt_of,
    send_command,
)
from firearrow.client.session import Session
from firearrow.hot import decode_records, parse_offset_message_id
from firearrow.model import message as names
from firearrow.model.errors import BrokerError, RequestNotSupported, ResponseCode, ServerFailed
from firearrow.model.topic import MessageQueue
from firearrow.net.errors import NetworkError
from firearrow.spark.errors import ConnectorError
from firearrow.wire import java_json
from firearrow.wire.bodies import KVTable
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import (
    TRANSACTION_COMMIT,
    EndTransactionRequest,
    EndTransactionsRequest,
    PullFlag,
    PullMessageRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from firearrow.hot import Record
    from firearrow.spark.decisions import Place, Target
    from firearrow.spark.options import ConnectionOptions

    T = TypeVar("T")

log = logging.getLogger(__name__)

READER_GROUP: Final = "TOOLS_CONSUMER"  # every broker has it
DATA_TIMEOUT_MS: Final = 15_000  # for one try at a request that brings or ends messages
RETRY_MS_MIN: Final = 50
RETRY_MS_MAX: Final = 1_000
REFUSALS_MAX: Final = 3  # a broker that fails at the same request so often means it
NEW_TOPIC_MS: Final = 10_000  # how long a topic that nobody has seen yet is waited for
QUEUE_NUMS: Final = "4"  # of topics that the first send creates
ENDS_MAX: Final = 64  # half messages that one request ends: a broker works on it for a while
SINGLES_IN_FLIGHT: Final = 256
PULL_MESSAGES: Final = 1_024
_PLACE: Final = struct.Struct(">qq")
_BATCHED: Final = struct.Struct(">iiiii")
_ELSEWHERE: Final = frozenset({1, 2, 14, 16, 17, 1500})


def may_pass(error: FirearrowError) -> bool:
    """Whether the same request may work later."""
    return error.code in _ELSEWHERE if isinstance(error, BrokerError) else error.retriable


class SinkCluster:
    """One process's way into a cluster; opened when first used."""

    def __init__(self, connection: ConnectionOptions) -> None:
        self._connection = connection
        self._session: Session | None = None
        self._plain: set[str] = set()  # brokers that do not know our requests
        self._seen: set[str] = set()  # topics that were there before

    async def open(self) -> Session:
        if self._session is None:
            connection = self._connection
            session = Session(connection.nameservers, connection.client_options())
            await session.start()
            self._session = session
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.stop()

    async def patiently(
        self,
        what: str,
        timeout_ms: int,
        work: Callable[[Session], Coroutine[Any, Any, T]],
        *,
        topic: str | None = None,
    ) -> T:
        """Do something, again and again if it fails at what may pass, until the time is up."""
        session = await self.open()
        clock = session.clock
        deadline_ms = clock.elapsed_ms() + timeout_ms
        pause_ms, refusals = RETRY_MS_MIN, 0
        while True:
            try:
                return await work(session)
            except FirearrowError as error:
                refusals += isinstance(error, ServerFailed)
                if not may_pass(error) or refusals >= REFUSALS_MAX:
                    raise
                if clock.elapsed_ms() + pause_ms >= deadline_ms:
                    raise ConnectorError(
                        f"{what} failed for {timeout_ms} ms (option deliveryTimeoutMs): {error}"
                    ) from error
                log.info("%s is tried again: %s", what, error)
            await clock.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, RETRY_MS_MAX)
            if topic is not None:
                await self._refresh(session, topic)

    @staticmethod
    async def _refresh(session: Session, topic: str) -> None:
        try:
            await session.refresh_route(topic)
        except FirearrowError as error:
            log.debug("the route of %s cannot be had now: %s", topic, error)

    # --- where ------------------------------------------------------------------------------

    async def queues(self, topic: str, timeout_ms: int) -> tuple[MessageQueue, ...]:
        """The queues of a topic (its name for users) that take messages now."""
        session = await self.open()
        wire = session.wrap(topic)
        if topic not in self._seen:
            timeout_ms = min(timeout_ms, NEW_TOPIC_MS)

        async def ask(session: Session) -> tuple[MessageQueue, ...]:
            route = await session.publish_route(wire, creation_queue_nums=int(QUEUE_NUMS))
            return route.publish

        found = await self.patiently(f"asking for the queues of topic {topic}", timeout_ms, ask)
        self._seen.add(topic)
        return found

    async def check_topic(self, topic: str) -> None:
        """Raise a text with a remedy if nothing can be sent to a topic, or nobody can be asked."""
        session = await self.open()
        addresses = ";".join(session.names.addresses)
        try:
            await session.publish_route(session.wrap(topic), creation_queue_nums=int(QUEUE_NUMS))
        except NetworkError as error:
            raise ConnectorError(
                f"no name server answers at {addresses} (option nameservers): {error}"
            ) from None
        except NoRoute as error:
            raise ConnectorError(
                f"topic {topic} (option topic) does not exist, say {addresses}: create it first, "
                f"or let brokers create topics ({error})"
            ) from None
        self._seen.add(topic)

    # --- messages ---------------------------------------------------------------------------

    async def send(
        self, target: Target, packed: Envelope, group: str, *, timeout_ms: int = DATA_TIMEOUT_MS
    ) -> SendReceipt:
        """One try at one queue."""
        session = await self.open()
        queue = MessageQueue(
            topic=target.topic, broker_name=target.broker, queue_id=target.queue_id
        )
        address = await session.find_master(target.broker, target.topic)
        command = send_command(
            packed,
            queue,
            group=session.wrap(group),
            born_ms=session.clock.now_ms(),
            creation_queue_nums=QUEUE_NUMS,
        )
        answer = await session.invoke(address, command, timeout_ms)
        return receipt_of(answer, packed, target.topic, target.broker)

    async def send_batch(self, target: Target, body: bytes, group: str, timeout_ms: int) -> None:
        """A batch that is delivered at once: at least once, if its answer is lost."""
        packed = Envelope(
            RequestCode.SEND_BATCH_MESSAGE, target.topic, body, "", "", "0", "0", batch=True
        )
        await self.patiently(
            f"sending to {_shown(target)}",
            timeout_ms,
            lambda _: self.send(target, packed, group),
            topic=target.topic,
        )

    async def prepare(
        self, target: Target, body: bytes, group: str, own: dict[str, str], timeout_ms: int
    ) -> tuple[bool, tuple[Place, ...]]:
        """A batch as half messages: whether it is a single one, and where they lie."""
        if target.broker not in self._plain:
            try:
                return True, (await self._stage(target, body, group, own, timeout_ms),)
            except RequestNotSupported:
                self._plain.add(target.broker)
        return False, await self._halves(target, body, group, own, timeout_ms)

    async def _stage(
        self, target: Target, body: bytes, group: str, own: dict[str, str], timeout_ms: int
    ) -> Place:
        session = await self.open()
        key = session.unique_keys.next()
        properties = {names.UNIQ_KEY: key, names.PRODUCER_GROUP: session.wrap(group), **own}
        packed = Envelope(
            RequestCode.STAGE_BATCH,
            target.topic,
            body,
            key,
            _text(properties),
            "0",
            "0",
            batch=True,
        )
        return await self._prepared(target, packed, group, timeout_ms)

    async def _halves(
        self, target: Target, body: bytes, group: str, own: dict[str, str], timeout_ms: int
    ) -> tuple[Place, ...]:
        session = await self.open()
        added = _text({names.TRAN_MSG: "true", names.PRODUCER_GROUP: session.wrap(group), **own})
        room = asyncio.Semaphore(SINGLES_IN_FLIGHT)

        async def one(content: bytes, properties: str) -> Place:
            packed = Envelope(
                RequestCode.SEND_MESSAGE_V2,
                target.topic,
                content,
                "",
                properties + added,
                str(names.TRANSACTION_PREPARED),
                "0",
            )
            async with room:
                return await self._prepared(target, packed, group, timeout_ms)

        return tuple(await asyncio.gather(*(one(*part) for part in _parts(body))))

    async def _prepared(
        self, target: Target, packed: Envelope, group: str, timeout_ms: int
    ) -> Place:
        """Where a half message lies that is as safe as the broker makes it.

        One whose answer was lost, or is not on disk in time, is left to be swept away.
        """

        async def ask(_: Session) -> Place:
            receipt = await self.send(target, packed, group)
            if receipt.status in {SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT}:
                raise ServerFailed(f"the broker could not make it safe in time: {receipt.status}")
            *_host, physical_offset = parse_offset_message_id(receipt.offset_msg_id)
            return receipt.queue_offset, physical_offset

        what = f"preparing messages for {_shown(target)}"
        return await self.patiently(what, timeout_ms, ask, topic=target.topic)

    # --- ends -------------------------------------------------------------------------------

    async def end_many(
        self,
        broker: str,
        topic: str,
        places: Sequence[Place],
        *,
        group: str,
        timeout_ms: int,
        outcome: int = TRANSACTION_COMMIT,
        sweep: tuple[str, int] | None = None,
    ) -> bool:
        """End half messages of a broker, in order; False if it does not know such a request.

        `sweep` is a scope and an epoch: what is open of them and not listed is rolled back.
        """
        if broker in self._plain:
            return False
        chunks = [places[at : at + ENDS_MAX] for at in range(0, max(1, len(places)), ENDS_MAX)]
        for number, chunk in enumerate(chunks):
            last = number == len(chunks) - 1
            scope = None if sweep is None or not last else sweep[0]
            epoch = None if sweep is None or not last else sweep[1]
            body = b"".join(_PLACE.pack(*place) for place in chunk)

            async def ask(
                session: Session,
                body: bytes = body,
                scope: str | None = scope,
                epoch: int | None = epoch,
            ) -> None:
                header = EndTransactionsRequest(
                    producer_group=session.wrap(group),
                    commit_or_rollback=outcome,
                    scope=scope,
                    epoch=epoch,
                )
                address = await session.find_master(broker, topic)
                code = RequestCode.END_TRANSACTIONS
                await session.call(address, code, header, body, timeout_ms=DATA_TIMEOUT_MS)

            try:
                what = f"ending half messages on broker {broker}"
                await self.patiently(what, timeout_ms, ask, topic=topic)
            except RequestNotSupported:
                self._plain.add(broker)
                return False
        return True

    async def end_singles(
        self,
        target: Target,
        places: Sequence[Place],
        *,
        group: str,
        timeout_ms: int,
        from_offset: int,
        is_first: bool,
        outcome: int = TRANSACTION_COMMIT,
    ) -> None:
        """End half messages for one queue one after the other, which keeps their order.

        To commit one twice makes two messages here. So unless we are the first to try, and after an
        answer that was lost, the queue is searched from `from_offset` on for those that are there.
        """
        session = await self.open()
        left = list(places)
        is_sure = is_first
        deadline_ms = session.clock.elapsed_ms() + timeout_ms
        while left:
            if not is_sure and outcome == TRANSACTION_COMMIT:
                there = await self.delivered(target, left, from_offset, timeout_ms)
                left = [place for place in left if place[1] not in there]
            try:
                while left:
                    await self._end_one(session, target, left[0], group, outcome)
                    left.pop(0)
            except FirearrowError as error:
                if not may_pass(error) or session.clock.elapsed_ms() >= deadline_ms:
                    raise
                log.info("half messages for %s are ended again: %s", _shown(target), error)
                is_sure = False
                await session.clock.sleep(RETRY_MS_MAX)
                await self._refresh(session, target.topic)

    @staticmethod
    async def _end_one(
        session: Session, target: Target, place: Place, group: str, outcome: int
    ) -> None:
        header = EndTransactionRequest(
            topic=target.topic,
            producer_group=session.wrap(group),
            tran_state_table_offset=place[0],
            commit_log_offset=place[1],
            commit_or_rollback=outcome,
            msg_id="",
        )
        address = await session.find_master(target.broker, target.topic)
        await session.call(address, RequestCode.END_TRANSACTION, header, timeout_ms=DATA_TIMEOUT_MS)

    async def delivered(
        self, target: Target, places: Sequence[Place], from_offset: int, timeout_ms: int
    ) -> set[int]:
        """Which half messages, by their place in the log, are in a queue as messages."""
        await self.patiently(
            f"waiting for the queues of broker {target.broker}",
            timeout_ms,
            lambda session: self._dispatched(session, target, timeout_ms),
            topic=target.topic,
        )
        wanted = {physical for _, physical in places}
        found: set[int] = set()
        offset = from_offset
        while True:
            records, offset = await self.patiently(
                f"reading {_shown(target)}",
                timeout_ms,
                lambda _, offset=offset: self.read(target, offset),  # type: ignore[misc]
                topic=target.topic,
            )
            if not records:
                return found
            found |= {
                record.prepared_offset
                for record in records
                if record.sys_flag & names.FLAG_TRANSACTION == names.TRANSACTION_COMMIT
            } & wanted

    @staticmethod
    async def _dispatched(session: Session, target: Target, timeout_ms: int) -> None:
        """Wait until everything that is in a broker's log now is in its queues, too."""
        address = await session.find_master(target.broker, target.topic)
        deadline_ms = session.clock.elapsed_ms() + timeout_ms
        end: int | None = None
        while True:
            answer = await session.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
            table = java_json.decode(answer.body, KVTable).table
            written = int(table.get("commitLogMaxOffset", "0"))
            behind = int(table.get("dispatchBehindBytes", "0"))
            end = written if end is None else end
            if written - behind >= end:
                return
            if session.clock.elapsed_ms() >= deadline_ms:
                raise ConnectorError(f"broker {target.broker} is behind with its queues for long")
            await session.clock.sleep(RETRY_MS_MIN)

    # --- reading ----------------------------------------------------------------------------

    async def read(self, target: Target, offset: int) -> tuple[list[Record], int]:
        """Records from an offset on, as many as come at once, and where to go on."""
        session = await self.open()
        header = PullMessageRequest(
            consumer_group=READER_GROUP,
            topic=target.topic,
            queue_id=target.queue_id,
            queue_offset=offset,
            max_msg_nums=PULL_MESSAGES,
            sys_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        address = await session.find_master(target.broker, target.topic)
        code, reply, body = await Calls(session).pull(address, header, DATA_TIMEOUT_MS)
        if code == ResponseCode.SUCCESS:
            return decode_records(body), reply.next_begin_offset
        if code == ResponseCode.PULL_OFFSET_MOVED and reply.next_begin_offset > offset:
            return await self.read(target, reply.next_begin_offset)
        return [], offset

    async def bounds(self, target: Target) -> tuple[int, int]:
        """The oldest offset of a queue, and the next one."""
        session = await self.open()
        queue = MessageQueue(
            topic=target.topic, broker_name=target.broker, queue_id=target.queue_id
        )
        calls = Calls(session)
        return await calls.min_offset(queue), await calls.max_offset(queue)


def _shown(target: Target) -> str:
    return f"queue {target.queue_id} of topic {target.topic} on broker {target.broker}"


def _text(properties: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def _parts(body: bytes) -> list[tuple[bytes, str]]:
    """Body and properties of each message of a batch that we made."""
    found = []
    at = 0
    while at < len(body):
        size, *_, content_bytes = _BATCHED.unpack_from(body, at)
        behind = at + _BATCHED.size + content_bytes
        found.append((body[at + _BATCHED.size : behind], body[behind + 2 : at + size].decode()))
        at += size
    return found
