"""Pulling: who may read what, from where, and what to say when there is nothing yet."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Final

from firearrow.broker.config import BrokerRole
from firearrow.broker.filtering import Wanted
from firearrow.broker.held_pulls import HeldPull
from firearrow.broker.judging import answer_later, collect, read_judged
from firearrow.broker.pull_lane import PullLane
from firearrow.model.errors import (
    InvalidParameter,
    NoPermission,
    ResponseCode,
    SubscriptionGroupNotFound,
    SubscriptionNotFound,
    SubscriptionNotLatest,
    SubscriptionParseFailed,
    SystemBusy,
    TopicNotFound,
)
from firearrow.model.group import SQL92, MessageModel, SubscriptionData, is_tag_type
from firearrow.model.topic import Perm
from firearrow.store.reading import Got, Status
from firearrow.wire import headers
from firearrow.wire.codes import Flag, RequestCode
from firearrow.wire.command import Command, reply_to
from firearrow.wire.headers import Forbidden, PullFlag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from firearrow.broker.state import BrokerState
    from firearrow.model.group import SubscriptionGroupConfig
    from firearrow.model.topic import TopicConfig
    from firearrow.net.connection import Connection

# Plain numbers: an operator of a flag class costs more than the rest of a check.
_READ: Final = int(Perm.READ)
_COMMIT_OFFSET: Final = int(PullFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)
OFFSET_RESET: Final = "OFFSET_RESET"
CODES_KEPT: Final = 10_000  # filter expressions whose tag hashes are remembered
_NOTHING: Final = frozenset({Status.NO_MESSAGE_IN_QUEUE, Status.NO_MATCHED_LOGIC_QUEUE})
_CODES: Final = {
    Status.FOUND: ResponseCode.SUCCESS,
    Status.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    Status.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    Status.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    Status.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class PullProcessor:
    """Answers PULL_MESSAGE and LITE_PULL_MESSAGE, now or when something arrives."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._codes: dict[tuple[str, tuple[str, ...]], Wanted] = {}
        self.lane = PullLane(
            state.store,
            state.clients,
            state.offsets,
            state.statistics,
            suggests=lambda: state.config.slave_read_enable,
        )

    def handle_pull(
        self, command: Command, connection: Connection
    ) -> Command | Awaitable[Command | None] | None:
        asked = headers.PullMessageRequest.from_ext(command.ext)
        if asked.sys_flag & _SUBSCRIPTION and asked.expression_type == SQL92:
            carried = _carried(asked)
            if self._state.filters.long_ones([carried]):
                return self._pull_later(command, connection, carried)
        group, topic = self._check(command, asked)
        want = self._wanted(asked, group)
        flags = asked.sys_flag
        if flags & _COMMIT_OFFSET and asked.commit_offset >= 0:
            self._state.offsets.commit(
                asked.topic, asked.consumer_group, asked.queue_id, asked.commit_offset
            )
        if command.flag & Flag.ONEWAY:
            return None  # nobody waits for messages; what it commits counts
        suspend_ms = 0
        if flags & _SUSPEND:
            config = self._state.config
            suspend_ms = (
                asked.suspend_timeout_millis
                if config.long_polling_enable
                else config.short_polling_time_mills
            )
        if want.judge is not None:
            return self._judged(command, connection, asked, topic, group, want, suspend_ms)
        run = partial(self._pull, command, connection, asked, topic, group, want, suspend_ms)
        if self._state.store.warming.is_cold(asked.topic, asked.queue_id, asked.queue_offset):
            return self._pull_cold(asked, run)
        return run()

    async def _pull_later(
        self, command: Command, connection: Connection, carried: SubscriptionData
    ) -> Command | None:
        """One whose expression takes long to compile."""
        await self._state.filters.compile_aside([carried])
        if connection.closed.done():
            return None
        answer = self.handle_pull(command, connection)
        return answer if answer is None or isinstance(answer, Command) else await answer

    async def _pull_cold(
        self, asked: headers.PullMessageRequest, run: Callable[[], Command | None]
    ) -> Command | None:
        """Far behind the end of the log: a thread waits for the disk, not everybody."""
        store = self._state.store
        pieces = await store.warming.warm(
            asked.topic, asked.queue_id, asked.queue_offset, asked.max_msg_nums
        )
        reply = run()  # with the limits of the disk, as RocketMQ answers who waited for it
        store.warming.warmed(pieces)
        return reply

    # --- checks -----------------------------------------------------------------------------

    def _check(
        self, command: Command, asked: headers.PullMessageRequest
    ) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        state = self._state
        config = state.config
        if not config.broker_permission & _READ:
            raise NoPermission(
                f"broker {config.broker_name} does not let anybody read",
                forbiddenType=Forbidden.BROKER,
            )
        if command.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise NoPermission(f"broker {config.broker_name} does not allow lite pull")
        if config.broker_role is BrokerRole.SLAVE and not config.slave_read_enable:
            raise SystemBusy(
                f"[REJECTREQUEST]broker {config.broker_name} ({config.broker_id}) is a slave and "
                "does not let anybody read (slaveReadEnable)"
            )
        group = state.groups.find(asked.consumer_group)
        if group is None:
            raise SubscriptionGroupNotFound(
                f"group {asked.consumer_group} does not exist; create it"
            )
        if not group.consume_enable:
            raise NoPermission(
                f"group {asked.consumer_group} is not allowed to consume",
                forbiddenType=Forbidden.GROUP,
            )
        topic = state.topics.get(asked.topic)
        if topic is None:
            raise TopicNotFound(f"topic {asked.topic} does not exist; create it first")
        if not topic.perm & _READ:
            raise NoPermission(
                f"topic {asked.topic} does not let anybody read", forbiddenType=Forbidden.TOPIC
            )
        if not 0 <= asked.queue_id < topic.read_queue_nums:
            raise InvalidParameter(
                f"queue {asked.queue_id} of topic {asked.topic} does not exist: it has "
                f"{topic.read_queue_nums} read queues"
            )
        return group, topic

    def _wanted(self, asked: headers.PullMessageRequest, group: SubscriptionGroupConfig) -> Wanted:
        """Which messages the group wants."""
        carried = asked.sys_flag & _SUBSCRIPTION
        if carried:
            if asked.subscription and not asked.subscription.replace("||", ""):
                raise SubscriptionParseFailed(f"{asked.subscription!r} names no tag")
            subscription = _carried(asked)
        else:
            subscription = self._registered(asked, group)
        if not is_tag_type(subscription.expression_type):
            filtering = self._state.filtering
            if carried:
                return filtering.of_pull(asked, subscription)
            return filtering.of_group(asked, subscription)
        return self._codes_of(subscription)

    def _codes_of(self, subscription: SubscriptionData) -> Wanted:
        """Tag hashes, worked out once per expression: pulls repeat it for ever."""
        key = (subscription.sub_string, subscription.tags_set)
        try:
            return self._codes[key]
        except KeyError:
            if len(self._codes) >= CODES_KEPT:
                self._codes.clear()
            want = self._codes[key] = Wanted(subscription.tag_codes)
            return want

    def _registered(
        self, asked: headers.PullMessageRequest, group: SubscriptionGroupConfig
    ) -> SubscriptionData:
        """What the group's heartbeats said of this topic."""
        members = self._state.clients.group(asked.consumer_group)
        if members is None:
            raise SubscriptionNotFound(f"group {asked.consumer_group} has sent no heartbeat yet")
        if (
            not group.consume_broadcast_enable
            and members.message_model is MessageModel.BROADCASTING
        ):
            raise NoPermission(
                f"group {asked.consumer_group} is not allowed to broadcast",
                forbiddenType=Forbidden.BROADCASTING,
            )
        if not self._state.groups.may_read(asked.consumer_group, asked.topic):
            raise NoPermission(
                f"group {asked.consumer_group} is not allowed to read topic {asked.topic}",
                forbiddenType=Forbidden.SUBSCRIPTION,
            )
        subscription = members.subscriptions.get(asked.topic)
        if subscription is None:
            raise SubscriptionNotFound(
                f"group {asked.consumer_group} does not subscribe to topic {asked.topic}"
            )
        if subscription.sub_version < asked.sub_version:
            raise SubscriptionNotLatest(
                f"the subscription of group {asked.consumer_group} is newer than its heartbeat"
            )
        return subscription

    # --- reading ----------------------------------------------------------------------------

    def _pull(  # noqa: PLR0917 - one request, taken apart once
        self,
        command: Command,
        connection: Connection,
        asked: headers.PullMessageRequest,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        want: Wanted,
        suspend_ms: int,
    ) -> Command | None:
        state = self._state
        reset = state.offsets.take_reset(asked.topic, asked.consumer_group, asked.queue_id)
        if reset is not None:
            return self._moved(command, asked, reset)
        got = state.store.get(
            asked.topic,
            asked.queue_id,
            asked.queue_offset,
            asked.max_msg_nums,
            codes=want.codes,
            wanted=want.record,
            looks=want.looks,
        )
        code = code_of(got, asked.queue_offset)
        if state.config.broker_role is BrokerRole.SLAVE and code != ResponseCode.SUCCESS:
            got, code = self._missed_on_slave(asked, got, code)
        if code == ResponseCode.PULL_NOT_FOUND and suspend_ms > 0:
            held = HeldPull(
                asked.topic,
                asked.queue_id,
                asked.queue_offset,
                state.clock.elapsed_ms() + suspend_ms,
                connection,
                want.codes,
                lambda: self._answer(command, connection, asked, topic, group, want),
                wanted=want.record,
                looks=want.looks,
            )
            if state.held.park(held):
                return None
        far = got.cold and state.config.slave_read_enable
        if code == ResponseCode.SUCCESS and not far and want.by_tags_alone:
            reply = self._header(topic, group, got)
            self.lane.open_gate(command.code, asked, topic, want.codes, reply)
        return self._reply(command, connection, asked, topic, group, got, code)

    def _missed_on_slave(
        self, asked: headers.PullMessageRequest, got: Got, code: int
    ) -> tuple[Got, int]:
        """A slave may be behind: what it does not have is no proof that it is not there.

        Readers go back to the master. Without one they wait here, and never lose their place.
        """
        state = self._state
        if got.status is Status.NO_MATCHED_MESSAGE or state.config.offset_check_in_slave:
            return got, code
        stays = dataclasses.replace(got, next_offset=asked.queue_offset, cold=False)
        if state.replication.follower.state.is_connected:
            return stays, ResponseCode.PULL_RETRY_IMMEDIATELY
        if got.status is Status.OFFSET_TOO_SMALL:
            return got, code
        return stays, ResponseCode.PULL_NOT_FOUND

    def _answer(  # noqa: PLR0917
        self,
        command: Command,
        connection: Connection,
        asked: headers.PullMessageRequest,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        want: Wanted,
    ) -> None:
        """A parked pull is run again, and now it answers."""
        if want.judge is not None:
            judged = self._judged(command, connection, asked, topic, group, want, 0)
            self._state.filtering.spawn(answer_later(connection, command, judged))
            return
        reply = self._pull(command, connection, asked, topic, group, want, 0)
        if reply is not None:
            connection.send_soon(reply)

    async def _judged(  # noqa: PLR0917
        self,
        command: Command,
        connection: Connection,
        asked: headers.PullMessageRequest,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        want: Wanted,
        suspend_ms: int,
    ) -> Command | None:
        """Messages are handed to a filter in another process; see judging.py."""
        store = self._state.store
        if store.warming.is_cold(asked.topic, asked.queue_id, asked.queue_offset):
            await store.warming.warm(
                asked.topic, asked.queue_id, asked.queue_offset, asked.max_msg_nums
            )
        batch = collect(store, asked)
        if not batch or want.judge is None:
            return self._pull(command, connection, asked, topic, group, want, suspend_ms)
        verdicts = await want.judge(list(batch.values()))
        got = read_judged(store, asked, dict(zip(batch, verdicts, strict=True)))
        code = code_of(got, asked.queue_offset)
        return self._reply(command, connection, asked, topic, group, got, code)

    def _reply(  # noqa: PLR0917
        self,
        command: Command,
        connection: Connection,
        asked: headers.PullMessageRequest,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        got: Got,
        code: int,
    ) -> Command | None:
        state = self._state
        header = self._header(topic, group, got)
        reply = reply_to(command, code, header, remark=got.status.value)
        if code != ResponseCode.SUCCESS:
            state.statistics.get_misses.count += 1
            return reply
        state.offsets.note_pull(asked.topic, asked.consumer_group, asked.queue_id, got.next_offset)
        self._count(asked, got)
        connection.send_slices(reply, got.slices)
        return None

    def _header(
        self, topic: TopicConfig, group: SubscriptionGroupConfig, got: Got
    ) -> headers.PullMessageReply:
        which = 0
        if self._state.config.slave_read_enable:
            which = group.which_broker_when_consume_slowly if got.cold else group.broker_id
        return headers.PullMessageReply(
            suggest_which_broker_id=which,
            next_begin_offset=got.next_offset,
            min_offset=got.min_offset,
            max_offset=got.max_offset,
            topic_sys_flag=topic.topic_sys_flag,
            group_sys_flag=group.group_sys_flag,
        )

    def _moved(self, command: Command, asked: headers.PullMessageRequest, offset: int) -> Command:
        lookup = self._state.store.lookup
        header = headers.PullMessageReply(
            suggest_which_broker_id=0,
            next_begin_offset=offset,
            min_offset=lookup.min_offset(asked.topic, asked.queue_id),
            max_offset=lookup.max_offset(asked.topic, asked.queue_id),
        )
        return reply_to(command, ResponseCode.PULL_OFFSET_MOVED, header, remark=OFFSET_RESET)

    def _count(self, asked: headers.PullMessageRequest, got: Got) -> None:
        statistics = self._state.statistics
        statistics.gets.count += got.count
        statistics.gets.times += 1
        key = f"{asked.topic}@{asked.consumer_group}"
        statistics.add("GROUP_GET_NUMS", key, got.count)
        statistics.add("GROUP_GET_SIZE", key, got.size)


def _carried(asked: headers.PullMessageRequest) -> SubscriptionData:
    """The subscription that a pull brings along."""
    return SubscriptionData.of(
        asked.topic,
        asked.subscription or "*",
        version=asked.sub_version,
        expression_type=asked.expression_type or "TAG",
    )


def code_of(got: Got, asked_offset: int) -> int:
    """What a client is told: exact, since push consumers move or stay by this code."""
    if got.status in _NOTHING:
        return ResponseCode.PULL_NOT_FOUND if asked_offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[got.status]
