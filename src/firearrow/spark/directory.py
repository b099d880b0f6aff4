"""What a query asks of the cluster: which queues there are, where they begin and end, progress.

The asyncio client does the work, on the loop that blocking clients share; the methods here wait.
Failures that may pass are tried again, then they become errors that name the queue and a remedy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from firearrow.base.errors import FirearrowError
from firearrow.client.calls import Calls
from firearrow.client.errors import NoRoute
from firearrow.client.portal import portal
from firearrow.client.session import Session
from firearrow.hot import decode_records
from firearrow.model.errors import ResponseCode
from firearrow.model.group import ConsumeType, SubscriptionData
from firearrow.model.topic import MessageQueue
from firearrow.net.errors import NetworkError
from firearrow.spark.errors import ConnectorError
from firearrow.spark.offsets import QueueName
from firearrow.spark.options import READER_GROUP, SUBSCRIBE_ALL, matches
from firearrow.wire import java_json
from firearrow.wire.bodies import ConsumerData, TopicList, TopicStatsTable
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import GetTopicStatsInfoRequest, PullFlag, PullMessageRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence

    from firearrow.spark.options import ConnectionOptions

    T = TypeVar("T")

log = logging.getLogger(__name__)

SAMPLE_MESSAGES: Final = 32


class Bounds(tuple[int, int]):
    """The oldest offset that a queue still has, and the one that its next message will get."""

    __slots__ = ()

    @property
    def least(self) -> int:
        return self[0]

    @property
    def behind(self) -> int:
        return self[1]


class Reader:
    """A member of a consumer group, as heartbeats show it: it shares no queues with others."""

    def __init__(self, group: str, topics: Collection[str]) -> None:
        self._group = group
        self._topics = sorted(topics)

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            subscription_data_set=tuple(
                SubscriptionData.of(topic, SUBSCRIBE_ALL, version=1) for topic in self._topics
            ),
        )

    def topics(self) -> Sequence[str]:
        return self._topics

    def rebalance_soon(self) -> None:
        """Spark shares the queues out."""


class Directory:
    """Answers for one cluster. Opened when first used; belongs to the process that made it."""

    def __init__(
        self, connection: ConnectionOptions, *, retries: int = 3, retry_interval_ms: int = 100
    ) -> None:
        self._connection = connection
        self._retries = retries
        self._retry_interval_ms = retry_interval_ms
        self._session: Session | None = None

    # --- life -------------------------------------------------------------------------------

    def close(self) -> None:
        """Say good-bye to brokers and hang up; the next question opens it again."""
        session, self._session = self._session, None
        if session is not None:
            portal.call(session.stop)

    async def _open(self) -> Session:
        if self._session is None:
            connection = self._connection
            session = Session(connection.nameservers, connection.client_options())
            await session.start()
            self._session = session
        return self._session

    def _ask(self, what: str, question: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """An answer, if need be after some tries."""

        async def asked() -> T:
            return await question(await self._open())

        for attempt in range(self._retries + 1):
            try:
                return portal.call(asked)
            except NoRoute:
                raise
            except FirearrowError as error:
                if attempt == self._retries or not error.retriable:
                    raise ConnectorError(self._failure(what, error)) from error
                log.info("%s failed, once more: %s", what, error)
            time.sleep(min(2_000, self._retry_interval_ms * 2**attempt) / 1000)
        raise AssertionError("unreachable")

    def _failure(self, what: str, error: FirearrowError) -> str:
        servers = ";".join(self._connection.nameservers)
        if isinstance(error, NetworkError):
            return (
                f"{what} failed ({error}). Check that the name servers {servers} (option "
                "'nameservers') and their brokers run and can be reached from here"
            )
        return f"{what} failed ({error}). {error.remedy}"

    # --- queues -----------------------------------------------------------------------------

    def topics(self, pattern: str) -> list[str]:
        """Topics whose whole name matches."""

        async def ask(session: Session) -> list[str]:
            answer = await session.ask_nameserver(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            return list(java_json.decode(answer.body, TopicList).topic_list)

        found = self._ask("asking for the list of topics", ask)
        prefix = f"{self._connection.namespace}%" if self._connection.namespace else ""
        shown = [name.removeprefix(prefix) for name in found if name.startswith(prefix)]
        return sorted(name for name in set(shown) if matches(pattern, name))

    def queues(self, topics: Iterable[str]) -> list[QueueName]:
        """Every readable queue of some topics, asked for anew; NoRoute for a topic without."""

        async def ask(session: Session) -> list[QueueName]:
            wire = {session.wrap(topic): topic for topic in topics}
            routes = await asyncio.gather(*(session.refresh_route(name) for name in wire))
            found = []
            for name, route in zip(wire, routes, strict=True):
                if route is None or not route.subscribe:
                    raise NoRoute(wire[name])
                found += [
                    QueueName(wire[name], one.broker_name, one.queue_id) for one in route.subscribe
                ]
            return sorted(found)

        return self._ask("asking for routes", ask)

    def bounds(self, queues: Iterable[QueueName]) -> dict[QueueName, Bounds]:
        """Where queues begin and end: one question for each topic and broker."""
        wanted = set(queues)

        async def ask(session: Session) -> dict[QueueName, Bounds]:
            places = sorted({(queue.topic, queue.broker) for queue in wanted})
            tables = await asyncio.gather(
                *(self._stats(session, topic, broker) for topic, broker in places)
            )
            found = {}
            for (topic, _), table in zip(places, tables, strict=True):
                for queue, place in table.offset_table.items():
                    name = QueueName(topic, queue.broker_name, queue.queue_id)
                    least = max(0, place.min_offset)
                    if name in wanted:
                        found[name] = Bounds((least, max(least, place.max_offset)))
            return found

        return self._ask("asking where queues begin and end", ask)

    @staticmethod
    async def _stats(session: Session, topic: str, broker: str) -> TopicStatsTable:
        name = session.wrap(topic)
        address = await session.find_master(broker, name)
        answer = await session.call(
            address, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequest(topic=name)
        )
        return java_json.decode(answer.body, TopicStatsTable)

    def offsets_at(self, times: Mapping[QueueName, int]) -> dict[QueueName, int]:
        """The offset of the first message stored at or after a time, by queue."""

        async def ask(session: Session) -> dict[QueueName, int]:
            calls = Calls(session)
            offsets = await asyncio.gather(
                *(calls.offset_at(self._wire(session, name), ms) for name, ms in times.items())
            )
            return dict(zip(times, offsets, strict=True))

        return self._ask("asking for offsets by time", ask)

    def addresses(self, queues: Iterable[QueueName]) -> dict[str, str]:
        """Where the brokers of some queues are; a slave only when there is no master."""
        topics = {queue.broker: queue.topic for queue in queues}

        async def ask(session: Session) -> dict[str, str]:
            found = {}
            for broker, topic in sorted(topics.items()):
                await session.route(session.wrap(topic))
                found[broker], _ = await session.find_replica(broker, session.wrap(topic), 0)
            return found

        return self._ask("asking where brokers are", ask)

    def new_address(self, queue: QueueName) -> str:
        """Where a broker is now, after it could not be reached."""

        async def ask(session: Session) -> str:
            await session.refresh_route(session.wrap(queue.topic))
            return (await session.find_replica(queue.broker, session.wrap(queue.topic), 0))[0]

        return self._ask(f"asking where broker {queue.broker} is", ask)

    @staticmethod
    def _wire(session: Session, name: QueueName) -> MessageQueue:
        return MessageQueue(
            topic=session.wrap(name.topic), broker_name=name.broker, queue_id=name.queue_id
        )

    # --- samples ----------------------------------------------------------------------------

    def record_bytes(self, queue: QueueName, offset: int) -> int | None:
        """How long records are from an offset on, on average over a few; None if there are none."""

        async def ask(session: Session) -> int | None:
            header = PullMessageRequest(
                consumer_group=READER_GROUP,
                topic=session.wrap(queue.topic),
                queue_id=queue.queue_id,
                queue_offset=offset,
                max_msg_nums=SAMPLE_MESSAGES,
                sys_flag=int(PullFlag.SUBSCRIPTION),
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription=SUBSCRIBE_ALL,
                sub_version=0,
            )
            address = await session.find_master(queue.broker, header.topic)
            code, _, body = await Calls(session).pull(address, header, 5_000)
            if code != ResponseCode.SUCCESS or not body:
                return None
            return len(body) // len(decode_records(body))

        return self._ask(f"looking at messages of {queue}", ask)

    # --- groups -----------------------------------------------------------------------------

    def join(self, group: str, topics: Collection[str]) -> None:
        """Be seen as a member of a group from now on, until `close`."""

        async def ask(session: Session) -> None:
            session.consumers[group] = Reader(
                session.wrap(group), [session.wrap(topic) for topic in topics]
            )
            await session.send_heartbeats()

        self._ask(f"joining group {group}", ask)

    def commit(self, group: str, offsets: Mapping[QueueName, int]) -> None:
        """Tell brokers how far a group is; every queue is tried, the first failure is raised."""

        async def ask(session: Session) -> None:
            calls = Calls(session)
            outcomes = await asyncio.gather(
                *(
                    calls.commit_offset(
                        session.wrap(group), self._wire(session, name), offset, wait=True
                    )
                    for name, offset in offsets.items()
                ),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

        self._ask(f"committing offsets of group {group}", ask)
