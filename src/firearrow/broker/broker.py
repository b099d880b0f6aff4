"""The broker as a whole: what it is made of, how it starts, keeps house and stops."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING, Any

from firearrow.base.errors import ConfigError, PeerProtocolError
from firearrow.base.files import write_atomically
from firearrow.base.runtime import Service, SystemClock
from firearrow.broker.clients import Clients
from firearrow.broker.delays import DelayOffsets, DelayService
from firearrow.broker.disk_waits import DiskWaits
from firearrow.broker.express import both_lanes
from firearrow.broker.filter_marks import MarkSizes
from firearrow.broker.filter_table import FilterTable, SavedFilters
from firearrow.broker.filtering import Filtering
from firearrow.broker.filters_saved import SavedPythonFilters, saved_of, taken_from
from firearrow.broker.group_table import GroupTable
from firearrow.broker.held_pulls import HeldPulls
from firearrow.broker.lanes import Lanes
from firearrow.broker.offset_table import OffsetTable
from firearrow.broker.processors.pull import PullProcessor
from firearrow.broker.processors.send import SendProcessor
from firearrow.broker.producer_sequences import ProducerSequences, SavedSequences
from firearrow.broker.queue_locks import QueueLocks
from firearrow.broker.registration import Registration
from firearrow.broker.request_modes import RequestModes
from firearrow.broker.request_table import request_table
from firearrow.broker.saving import SavedTable
from firearrow.broker.state import BrokerState
from firearrow.broker.statistics import SAMPLE_MS, BrokerStatistics
from firearrow.broker.timers import TimerService
from firearrow.broker.topic_table import TopicTable
from firearrow.broker.transactions import TransactionService
from firearrow.filters.server import FilterLimits, FilterServer
from firearrow.model.group import MessageModel
from firearrow.model.message import host_bytes
from firearrow.net.access import refuse_open_address
from firearrow.net.client import RemotingClient
from firearrow.net.connection import Connection, Limits
from firearrow.net.router import Router
from firearrow.net.server import Server
from firearrow.net.tls import TlsPolicy
from firearrow.store.config_files import FOLDER
from firearrow.store.store import MessageStore
from firearrow.wire import bodies
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import NotifyConsumerIdsChangedRequest
from firearrow.wire.properties_text import format_properties, parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from firearrow.base.runtime import Clock
    from firearrow.broker.config import BrokerConfig
    from firearrow.broker.express import ExpressLane
    from firearrow.broker.pull_lane import PullLane
    from firearrow.store.disk import Disk

log = logging.getLogger(__name__)

HOUSEKEEPING_MS = 10_000
LATE_CHECK_MS = 100
LAG_CHECK_MS = 1_000
VIP_DISTANCE = 2
FOLLOWED_BYTES_MAX = 1 << 30  # of log that another broker wrote meanwhile: who sent what


class Broker:
    """One broker: a store, the tables around it, and a server in front."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        *,
        insecure: bool = False,
        disk: Disk | None = None,
    ) -> None:
        if not insecure:
            refuse_open_address(config.bind_address)
        self.config = config
        self._clock = clock = clock or SystemClock()
        self._tasks = tasks = Service("broker", clock)
        self._client = RemotingClient(clock)
        self._servers: list[Server] = []
        self.express: ExpressLane | None = None
        self.pull_lane: PullLane | None = None
        store = MessageStore(config, clock, disk=disk)
        topics = TopicTable(clock, self._topic_changed)
        delays = DelayService(config, store, topics, clock)
        filters = FilterTable(
            clock,
            MarkSizes.of(
                config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
            ),
            keep_dead_ms=lambda: self.config.filter_data_clean_time_span,
        )
        server = FilterServer(
            FilterLimits(
                config.filter_server_nums, config.filter_memory_bytes, config.filter_batch_millis
            ),
            clock,
            self._installed_filters_changed,
        )
        offsets, clients = OffsetTable(clock), Clients(clock)
        statistics = BrokerStatistics(clock, config.broker_cluster_name)
        lanes = Lanes(config)
        self.state = BrokerState(
            config=config,
            clock=clock,
            store=store,
            topics=topics,
            groups=GroupTable(
                clock, self._groups_changed, auto_create=config.auto_create_subscription_group
            ),
            offsets=offsets,
            clients=clients,
            locks=QueueLocks(clock),
            held=HeldPulls(
                clock,
                limit=config.held_pulls_max,
                limit_of_channel=config.held_pulls_of_connection_max,
                read=store.lookup.slice_at,
            ),
            lanes=lanes,
            request_modes=RequestModes(self._modes_changed),
            filters=filters,
            filtering=Filtering(
                filters, server, lambda: self.config, lambda work: tasks.spawn(work, name="judge")
            ),
            filter_server=server,
            delays=delays,
            timers=TimerService(config, store, topics, clock),
            transactions=TransactionService(
                config,
                store,
                clock,
                topics=topics,
                offsets=offsets,
                clients=clients,
                statistics=statistics,
            ),
            sequences=ProducerSequences(
                config.deduplication_window, config.deduplication_entries_max
            ),
            disk_waits=DiskWaits(
                store,
                clock,
                lanes.send,
                timeout_ms=config.sync_flush_timeout,
                busy_ms=config.os_page_cache_busy_time_out_mills,
            ),
            registration=Registration(config, topics, self._client, tasks, clock),
            statistics=statistics,
            notify_group=self._notify_group,
            reconfigure=self._reconfigure,
        )
        self._make_tables(config.store_path_root_dir.expanduser() / FOLDER)
        self._delay_offsets = DelayOffsets()  # as they were when the log was last on disk

    def _make_tables(self, folder: Path) -> None:
        """Everything that is kept in `config/*.json`."""
        state, tasks = self.state, self._tasks
        topics = state.topics
        self._saved_topics = SavedTable(
            folder / "topics.json",
            bodies.TopicConfigSerializeWrapper,
            tasks,
            lambda: bodies.TopicConfigSerializeWrapper(
                data_version=topics.version, topic_config_table=dict(topics.all())
            ),
        )
        self._saved_groups = SavedTable(
            folder / "subscriptionGroup.json",
            bodies.SubscriptionGroupWrapper,
            tasks,
            lambda: bodies.SubscriptionGroupWrapper(
                data_version=state.groups.version,
                subscription_group_table=dict(state.groups.all()),
                forbidden_table=state.groups.forbidden,
            ),
        )
        self._saved_offsets = SavedTable(
            folder / "consumerOffset.json",
            bodies.ConsumerOffsetWrapper,
            tasks,
            lambda: bodies.ConsumerOffsetWrapper(
                data_version=state.offsets.version, offset_table=state.offsets.snapshot()
            ),
        )
        self._saved_modes = SavedTable(
            folder / "messageRequestMode.json",
            bodies.MessageRequestModes,
            tasks,
            lambda: bodies.MessageRequestModes(message_request_mode_map=state.request_modes.table),
        )
        self._saved_delays = SavedTable(
            folder / "delayOffset.json",
            DelayOffsets,
            tasks,
            lambda: self._delay_offsets,
        )
        self._saved_filters = SavedTable(
            folder / "consumerFilter.json", SavedFilters, tasks, state.filters.snapshot
        )
        self._saved_python_filters = SavedTable(
            folder / "pythonFilter.json",
            SavedPythonFilters,
            tasks,
            lambda: saved_of(state.filter_server.all()),
        )
        self._saved_sequences = SavedTable(
            folder / "firearrowProducers.json",
            SavedSequences,
            tasks,
            lambda: self._sequences,
            is_ours=True,
        )
        self._sequences = SavedSequences()

    @property
    def address(self) -> str:
        """Where clients find it, once started."""
        return self.state.registration.address

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, listen, register. Nothing is served before everything is loaded."""
        await self.state.store.start()
        try:
            self._load_tables()
            await self._serve()
        except BaseException:
            await self._let_go()
            await self.state.timers.stop()
            await self.state.store.stop()
            raise
        log.info("broker %s listens on %s", self.config.broker_name, self.address)

    async def _serve(self) -> None:
        state, config = self.state, self.config
        server = await self._listen()
        host, port = config.broker_ip1 or server.host, server.port
        # Port 0 was a wish; listings show what became of it.
        self._heed(dataclasses.replace(config, listen_port=port))
        state.store_host = host_bytes(host, port)
        state.store.set_store_host(state.store_host)
        state.store.listen(state.held.wake)
        state.delays.start()
        state.transactions.start(self._tasks)
        state.timers.start()
        ha_port = config.ha_listen_port or port + 1
        await state.registration.start(_address(host, port), _address(host, ha_port))
        self._save_delays_soon()
        self._save_sequences_soon()
        self._keep_house()

    def _load_tables(self) -> None:
        state = self.state
        topics = self._saved_topics.load()
        if topics is not None:
            state.topics.load(topics.topic_config_table, topics.data_version)
        state.topics.create_built_in(self.config)
        groups = self._saved_groups.load()
        if groups is not None:
            state.groups.load(
                groups.subscription_group_table, groups.forbidden_table or {}, groups.data_version
            )
        state.groups.create_built_in()
        offsets = self._saved_offsets.load()
        if offsets is not None:
            state.offsets.load(offsets.offset_table, offsets.data_version)
        filters = self._saved_filters.load()
        if filters is not None:
            state.filters.load(filters)
        python_filters = self._saved_python_filters.load()
        if python_filters is not None:
            state.filter_server.load(taken_from(python_filters))
        state.delays.load(self._saved_delays.load())
        state.transactions.load()
        self._load_sequences()
        modes = self._saved_modes.load()
        if modes is not None:
            state.request_modes.load(modes)
        state.timers.load()
        for table in (self._saved_topics, self._saved_groups):
            table.changed()
            table.save_soon()

    def _load_sequences(self) -> None:
        """Who sent what, as of the last save, and what the log says behind that."""
        store, recovered = self.state.store, self.state.store.recovered
        saved, end = self._saved_sequences.load(), store.statistics().end_offset
        if saved is not None:
            self.state.sequences.load(saved, end)
            self.state.sequences.follow(store.scan(max(saved.log_offset, end - FOLLOWED_BYTES_MAX)))
        elif recovered is not None and not recovered.clean:
            self.state.sequences.follow(store.scan(recovered.scanned_from))

    async def _listen(self) -> Server:
        """Open the port, and two below it the one that old Java clients send to."""
        send = SendProcessor(self.state)
        self.express = send.express
        pull = PullProcessor(self.state)
        self.pull_lane = pull.lane
        lanes = self.state.lanes
        router = Router(
            request_table(self.state, send, pull),
            self._tasks,
            lanes=lanes.by_code(),
            default_lane=lanes.admin,
        )
        server = self._make_server(self.config.listen_port, router)
        await server.start()
        self._servers.append(server)
        if self.config.listen_port > VIP_DISTANCE:
            vip = self._make_server(server.port - VIP_DISTANCE, router)
            try:
                await vip.start()
            except ConfigError as error:
                log.warning("clients that use the VIP channel cannot send: %s", error)
            else:
                self._servers.append(vip)
        return server

    def _make_server(self, port: int, router: Router) -> Server:
        config = self.config
        assert self.express is not None
        assert self.pull_lane is not None
        return Server(
            router,
            self._clock,
            host=config.bind_address,
            port=port,
            limits=Limits(connections_max=config.connections_max),
            tls=TlsPolicy(
                mode=config.tls_server_mode,
                certificate=config.tls_server_cert_path,
                key=config.tls_server_key_path,
                client_ca=config.tls_server_trust_cert_path,
                self_signed=config.tls_test_mode_enable,
            ),
            on_close=self._channel_closed,
            express=both_lanes(self.express, self.pull_lane),
        )

    async def stop(self) -> None:
        """Leave the name servers, answer what waits, write everything down."""
        state = self.state
        await state.registration.unregister()
        state.delays.stop()
        state.held.wake_all()
        await self._let_go()
        state.transactions.finish()
        await state.timers.stop()
        await state.store.stop()
        self._save_offsets()
        self._take_filters()
        store = state.store.statistics()
        if store.flushed_offset >= store.end_offset:
            self._take_delays(state.delays.snapshot())
            self._take_sequences(state.sequences.snapshot(store.end_offset))
        for table in self._tables():
            with contextlib.suppress(OSError):
                table.save_now()
        log.info("broker %s stopped", self.config.broker_name)

    async def _let_go(self) -> None:
        """Serve nobody any more, and leave no task behind."""
        while self._servers:
            await self._servers.pop().stop()
        for table in self._tables():
            await table.settle()
        await self._tasks.stop_tasks()
        await self.state.filter_server.stop()
        await self._client.close()

    def _tables(self) -> Iterable[SavedTable[Any]]:
        return (
            self._saved_topics,
            self._saved_groups,
            self._saved_offsets,
            self._saved_delays,
            self._saved_filters,
            self._saved_python_filters,
            self._saved_sequences,
            self._saved_modes,
        )

    # --- keeping house ----------------------------------------------------------------------

    def _keep_house(self) -> None:
        config, tasks, state = self.config, self._tasks, self.state
        tasks.every(LATE_CHECK_MS, state.held.expire, name="held-pulls")
        tasks.every(LATE_CHECK_MS, state.disk_waits.expire, name="disk-waits")
        tasks.every(LAG_CHECK_MS, self._measure_lag(), name="loop-lag")
        tasks.every(SAMPLE_MS, state.statistics.sample, name="statistics")
        tasks.every(HOUSEKEEPING_MS, self._drop_silent_clients, name="clients")
        tasks.every(HOUSEKEEPING_MS, state.locks.expire, name="locks")
        tasks.every(
            config.flush_consumer_offset_interval, self._save_offsets_soon, name="save-offsets"
        )
        tasks.every(config.flush_delay_offset_interval, self._save_delays_soon, name="save-delays")
        tasks.every(config.flush_filter_data_interval, self._save_filters_soon, name="save-filters")
        tasks.every(
            config.flush_delay_offset_interval, self._save_sequences_soon, name="save-sequences"
        )

    def _take_filters(self) -> None:
        self.state.filters.forget_old()
        if self.state.filters.changed:
            self.state.filters.changed = False
            self._saved_filters.changed()

    def _save_filters_soon(self) -> None:
        self._take_filters()
        self._saved_filters.save_soon()

    def _measure_lag(self) -> Callable[[], None]:
        """How late the loop is: so long does a request wait that has just come in."""
        due_ms = self._clock.elapsed_ms() + LAG_CHECK_MS

        def look() -> None:
            nonlocal due_ms
            now_ms = self._clock.elapsed_ms()
            self.state.statistics.lag_ms = max(0, now_ms - due_ms)
            due_ms = now_ms + LAG_CHECK_MS

        return look

    def _save_offsets(self) -> None:
        if self.state.offsets.changed:
            self.state.offsets.changed = False
            self._saved_offsets.changed()

    def _save_offsets_soon(self) -> None:
        self._save_offsets()
        self._saved_offsets.save_soon()
        self._saved_topics.save_soon()
        self._saved_groups.save_soon()
        self._saved_modes.save_soon()

    def _save_delays_soon(self) -> None:
        """Save how far delayed messages are, once the log is on disk as far."""
        if not self.state.delays.changed:
            self._saved_delays.save_soon()  # what could not be written last time
            return
        taken = self.state.delays.snapshot()
        assert taken.log_offset is not None

        def tell(on_disk: bool) -> None:  # noqa: FBT001
            if on_disk:
                self._take_delays(taken)
                self._saved_delays.save_soon()

        self.state.store.when_flushed(taken.log_offset, tell)

    def _take_delays(self, taken: DelayOffsets) -> None:
        self._delay_offsets = taken
        self._saved_delays.changed()

    def _save_sequences_soon(self) -> None:
        """Save who sent what, once the log is on disk as far as the table covers it."""
        end = self.state.store.statistics().end_offset
        if end == self._sequences.log_offset:
            self._saved_sequences.save_soon()
            return
        taken = self.state.sequences.snapshot(end)

        def tell(on_disk: bool) -> None:  # noqa: FBT001
            if on_disk:
                self._take_sequences(taken)
                self._saved_sequences.save_soon()

        self.state.store.when_flushed(end, tell)

    def _take_sequences(self, taken: SavedSequences) -> None:
        self._sequences = taken
        self._saved_sequences.changed()

    def _drop_silent_clients(self) -> None:
        for channel in self.state.clients.expired(self.config.channel_expired_timeout):
            assert isinstance(channel, Connection)
            channel.close("no heartbeat for too long")

    def _close_gates(self) -> None:
        """What the compiled lanes took for granted has changed."""
        if self.express is not None:
            self.express.close_gates()
        if self.pull_lane is not None:
            self.pull_lane.close_gates()

    def _topic_changed(self, topic: str) -> None:
        self._close_gates()
        if self.state.topics.get(topic) is None:
            self.state.sequences.forget_topic(topic)
        self._saved_topics.changed()
        self._saved_topics.save_soon()
        self.state.registration.register_soon(topic)

    def _installed_filters_changed(self) -> None:
        self._saved_python_filters.changed()
        self._saved_python_filters.save_soon()

    def _groups_changed(self) -> None:
        if self.pull_lane is not None:
            self.pull_lane.close_gates()
        self._saved_groups.changed()
        self._saved_groups.save_soon()

    def _modes_changed(self) -> None:
        self._saved_modes.changed()
        self._saved_modes.save_soon()

    # --- clients ----------------------------------------------------------------------------

    def _channel_closed(self, connection: Connection) -> None:
        self.state.held.channel_closed(connection)
        for group in self.state.clients.channel_closed(connection):
            if self.state.clients.group(group) is None:
                self.state.filters.unregister(group)
            self._notify_group(group)

    def _notify_group(self, name: str) -> None:
        """Tell the members of a group to share their queues anew."""
        group = self.state.clients.group(name)
        config = self.state.groups.get(name)
        if group is None or group.message_model is MessageModel.BROADCASTING:
            return
        if config is not None and not config.notify_consumer_ids_changed_enable:
            return
        header = NotifyConsumerIdsChangedRequest(consumer_group=name)
        for member in list(group.members.values()):
            assert isinstance(member.channel, Connection)
            member.channel.invoke_oneway(
                request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True)
            )

    # --- settings ---------------------------------------------------------------------------

    def _reconfigure(self, config: BrokerConfig, changes: Mapping[str, str]) -> None:
        """Settings were changed by request: write them down, then heed them."""
        if config.broker_config_path is not None:
            save_settings(config.broker_config_path, changes)
        before = self.config
        self._heed(config)
        if config.auto_create_topic_enable:
            self.state.topics.set_example(config.default_topic_queue_nums)
        if config.broker_permission != before.broker_permission:
            self.state.topics.touch()
            self.state.registration.register_anew()

    def _heed(self, config: BrokerConfig) -> None:
        self.config = self.state.config = config
        self.state.store.reconfigure(config)
        self.state.registration.reconfigure(config)
        self.state.transactions.reconfigure(config)
        self.state.disk_waits.reconfigure(
            timeout_ms=config.sync_flush_timeout,
            busy_ms=config.os_page_cache_busy_time_out_mills,
        )
        self.state.groups.auto_create = config.auto_create_subscription_group
        self._close_gates()


def save_settings(path: Path, changes: Mapping[str, str]) -> None:
    """Put changed settings into the file that the broker was started with; ConfigError if not."""
    try:
        values = parse_properties(path.read_bytes()) if path.exists() else {}
        write_atomically(path, format_properties(values | dict(changes)))
    except (OSError, PeerProtocolError) as error:
        raise ConfigError(f"nothing is changed: {path} (brokerConfigPath): {error}") from error


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
