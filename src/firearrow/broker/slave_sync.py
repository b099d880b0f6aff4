"""Tables that follow the master's by timer: a slave asks, as RocketMQ's slaves do.

    every 3 s    how far groups are, delays, the timer
    every 10 s   topics, groups, how groups ask, filters written in Python

Consumers register SQL filters with slaves themselves: their heartbeats go to every broker.

What a group has committed here, because its master was away or sent it here, goes to the master
first: it is told with the request that consumers use, so any master understands it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from firearrow.base.errors import FirearrowError
from firearrow.base.files import write_atomically
from firearrow.base.runtime import Service
from firearrow.broker.delays import DelayOffsets
from firearrow.broker.processors.filters_admin import WITH_SOURCE, installers_of, is_granted
from firearrow.model.errors import BrokerError, error_for
from firearrow.store.config_files import FOLDER
from firearrow.store.timer_checkpoint import TimerCheckpoint
from firearrow.store.timer_files import CHECKPOINT_NAME
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from firearrow.base.runtime import Clock
    from firearrow.broker.state import BrokerState
    from firearrow.broker.tables import Tables
    from firearrow.net.client import RemotingClient
    from firearrow.wire.command import Command

    Committed = Mapping[str, Mapping[int, int]]

log = logging.getLogger(__name__)

T = TypeVar("T")

TIMEOUT_MS: Final = 3_000
BROKERS_OWN: Final = "CID_RMQ_SYS_"  # groups in which a master keeps its own place
MASTER: Final = "master"  # as who has installed a filter
WITH_NOTE: Final = "firearrowNote"  # a request of ours: more than Apache's brokers would answer


class SlaveSync:
    """Keeps a slave's tables like its master's. Owns the task that asks."""

    def __init__(
        self,
        state: BrokerState,
        tables: Tables,
        client: RemotingClient,
        clock: Clock,
        on_tables: Callable[[], None],
    ) -> None:
        self._state = state
        self._tables = tables
        self._client = client
        self._clock = clock
        self._on_tables = on_tables
        self._tasks = Service("slave-sync", clock)
        self._known: dict[str, dict[int, int]] = {}  # what the master said last of offsets
        self._installers = installers_of(state.config.filter_installers)
        self._topics_seen: set[str] = set()  # with this master
        self._delays: DelayOffsets | None = None  # until our log is as long as they say
        self._timer: TimerCheckpoint | None = None
        self._timer_saved: TimerCheckpoint | None = None
        self._end_before = 0
        self._complained = ""
        self.master_address = ""
        self.rounds = 0  # that the master answered

    def follow(self, master_address: str) -> None:
        """Ask this master from now on."""
        if master_address != self.master_address:
            self.master_address = master_address
            self._known = {}
            self._delays = self._timer = self._timer_saved = None
            self._topics_seen = set()

    def start(self) -> None:
        self._tasks.spawn(self._keep_asking(), name="tables")

    async def stop(self) -> None:
        self.master_address = ""
        await self._tasks.stop_tasks()

    async def _keep_asking(self) -> None:
        asked_all_ms: int | None = None
        while True:
            config, now_ms = self._state.config, self._clock.elapsed_ms()
            is_due = asked_all_ms is None or (
                now_ms - asked_all_ms >= config.sync_broker_metadata_period
            )
            if self.master_address and await self._round(everything=is_due) and is_due:
                asked_all_ms = now_ms
            await self._clock.sleep(config.slave_sync_interval)

    async def _round(self, *, everything: bool) -> bool:
        """Ask for what is due; False if the master did not answer."""
        try:
            if everything:
                await self._take_topics()
                await self._take_groups()
            await self.exchange_offsets()
            with contextlib.suppress(BrokerError):  # not every master has all of these
                await self._take_delays()
            with contextlib.suppress(BrokerError):
                await self._take_timer()
            with contextlib.suppress(BrokerError):
                await self._take_modes()
            if everything:
                await self._take_filters()
        except (FirearrowError, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            if reason != self._complained:
                log.warning("tables of the master %s: %s", self.master_address, reason)
                self._complained = reason
            return False
        self._complained = ""
        self.rounds += 1
        return True

    async def _ask(self, command: Command) -> bytes:
        reply = await self._client.invoke(self.master_address, command, TIMEOUT_MS)
        if reply.code:
            raise error_for(reply.code, reply.remark)
        return reply.body

    async def _table(self, code: RequestCode, kind: type[T]) -> T:
        return java_json.decode(await self._ask(request(code)), kind)

    # --- what is replaced -------------------------------------------------------------------

    async def _take_topics(self) -> None:
        said = await self._table(
            RequestCode.GET_ALL_TOPIC_CONFIG, bodies.TopicConfigSerializeWrapper
        )
        topics, names = self._state.topics, set(said.topic_config_table)
        # A new master may not know the newest topics. Only what it had and has no more was deleted.
        gone, self._topics_seen = self._topics_seen - names, names
        if said.data_version == topics.version or not names:
            return
        topics.load(said.topic_config_table, said.data_version)
        topics.create_built_in(self._state.config)
        topics.version = said.data_version
        for name in gone - set(topics.all()):
            log.info("topic %s is deleted, as on the master", name)
            self._state.store.delete_topic(name)
            self._state.offsets.remove_topic(name)
        self._tables.topics.write()
        self._on_tables()

    async def _take_groups(self) -> None:
        said = await self._table(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, bodies.SubscriptionGroupWrapper
        )
        groups = self._state.groups
        if said.data_version == groups.version:
            return
        groups.load(said.subscription_group_table, said.forbidden_table or {}, said.data_version)
        groups.create_built_in()
        self._tables.groups.write()
        self._on_tables()

    async def _take_modes(self) -> None:
        said = await self._table(
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, bodies.MessageRequestModes
        )
        if said.message_request_mode_map != self._state.request_modes.table:
            self._state.request_modes.load(said)
            self._tables.modes.write()

    async def _take_filters(self) -> None:
        """The master's filters, if it may install any here: it is code, and the operator's word."""
        server, master = self._state.filter_server, self.master_address
        if not server.is_on or not is_granted(self._installers, master):
            return
        command = request(RequestCode.LIST_FILTERS)
        command.ext[WITH_SOURCE] = "true"
        by = f"{MASTER} {master}"
        try:
            listed = java_json.decode(await self._ask(command), bodies.FilterList).filters
            wanted = {one.name: one.source for one in listed if one.source is not None}
            here = {one.name: one for one in server.all()}
            for name, source in wanted.items():
                if name not in here or here[name].source != source:
                    await server.install(name, source, by)
            for name, one in here.items():
                if name not in wanted and one.installed_by.startswith(MASTER):
                    await server.remove(name, by)
        except BrokerError as error:  # the master grants us nothing, or is not ours
            log.debug("filters of the master %s: %s", master, error)

    # --- offsets, both ways -----------------------------------------------------------------

    async def exchange_offsets(self) -> None:
        """Tell the master what was committed here, then take what it has."""
        said = await self._table(RequestCode.GET_ALL_CONSUMER_OFFSET, bodies.ConsumerOffsetWrapper)
        offsets = self._state.offsets
        ahead = list(committed_here(offsets.snapshot(), said.offset_table, self._known))
        for topic, group, queue_id, offset in ahead:
            header = headers.UpdateConsumerOffsetRequest(
                consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
            )
            await self._ask(request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
        known = {key: dict(queues) for key, queues in said.offset_table.items()}
        for topic, group, queue_id, offset in ahead:
            known.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self._known = known
        offsets.merge(known)
        if said.data_version is not None:
            offsets.version = said.data_version

    # --- delays and the timer ---------------------------------------------------------------

    async def _take_delays(self) -> None:
        """What counts as delivered must be in our log, too: it waits until it is."""
        end = self._state.replication.confirm_offset
        if self._delays is not None and (self._delays.log_offset or 0) <= end:
            self._state.delays.follow(self._delays)
            self._tables.save_delays_soon()
        self._delays = await self._table(RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets)

    async def _take_timer(self) -> None:
        """Keep what the master's timer said a round ago: our log has got as far by now."""
        if not self._state.timers.is_enabled:
            return
        end = self._state.store.replica.end_offset
        before, self._end_before = self._end_before, end
        command = request(RequestCode.GET_TIMER_CHECK_POINT)
        command.ext[WITH_NOTE] = "true"
        said = TimerCheckpoint.decode(await self._ask(command))
        taken, self._timer = self._timer, said
        if taken is None or taken.read_ms <= 0 or taken == self._timer_saved:
            return  # its timer has not been saved yet, or we know it all
        kept = taken
        if taken.log_offset is None:
            # Of Apache's master: what it delivered since lies behind where our log was before.
            kept = replace(
                taken,
                log_end=max(1, taken.log_end),
                precision_ms=self._state.timers.precision_ms,
                log_offset=before,
            )
        elif taken.log_offset > self._state.replication.confirm_offset:
            return
        root = self._state.config.store_path_root_dir.expanduser()
        await asyncio.to_thread(_save_checkpoint, root, kept)
        self._timer_saved = taken


def forget_timer_files(root: Path) -> None:
    """Wheel and log lead into a commit log that may be cut; they are made anew from it."""
    shutil.rmtree(root / "timerlog", ignore_errors=True)
    (root / "timerwheel").unlink(missing_ok=True)


def _save_checkpoint(root: Path, checkpoint: TimerCheckpoint) -> None:
    """How far the master's timer is."""
    forget_timer_files(root)
    path = root / FOLDER / CHECKPOINT_NAME
    write_atomically(path, checkpoint.encode(), keep_backup=False)


def committed_here(
    ours: Committed, masters: Committed, known: Committed
) -> Iterator[tuple[str, str, int, int]]:
    """Topic, group, queue and offset that groups have committed here, and not to the master."""
    for key, queues in ours.items():
        topic, _, group = key.partition("@")
        if group.startswith(BROKERS_OWN):
            continue
        for queue_id, offset in queues.items():
            theirs = masters.get(key, {}).get(queue_id, -1)
            if offset > theirs and offset != known.get(key, {}).get(queue_id):
                yield topic, group, queue_id, offset
