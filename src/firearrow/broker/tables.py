"""What a broker keeps beside its messages, in `config/*.json`: loaded, followed, saved.

Most tables are RocketMQ's own. Delays and producers' sequences say how far in the log they are
true, so they are saved only when the log is on disk as far.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from firearrow.broker.config import BrokerRole
from firearrow.broker.delays import DelayOffsets
from firearrow.broker.filter_table import SavedFilters
from firearrow.broker.filters_saved import SavedPythonFilters, saved_of, taken_from
from firearrow.broker.producer_sequences import SavedSequences
from firearrow.broker.saving import SavedTable
from firearrow.wire import bodies

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from firearrow.base.runtime import Service
    from firearrow.broker.state import BrokerState

FOLLOWED_BYTES_MAX: Final = 1 << 30  # of log that another broker wrote meanwhile: who sent what


class Tables:
    """All of them, and when each is written."""

    def __init__(self, state: BrokerState, tasks: Service, folder: Path) -> None:
        self._state = state
        self._tasks = tasks
        self._delay_offsets = DelayOffsets()  # as they were when the log was last on disk
        self._sequences = SavedSequences()
        topics = state.topics
        self.topics = SavedTable(
            folder / "topics.json",
            bodies.TopicConfigSerializeWrapper,
            tasks,
            lambda: bodies.TopicConfigSerializeWrapper(
                data_version=topics.version, topic_config_table=dict(topics.all())
            ),
        )
        self.groups = SavedTable(
            folder / "subscriptionGroup.json",
            bodies.SubscriptionGroupWrapper,
            tasks,
            lambda: bodies.SubscriptionGroupWrapper(
                data_version=state.groups.version,
                subscription_group_table=dict(state.groups.all()),
                forbidden_table=state.groups.forbidden,
            ),
        )
        self.offsets = SavedTable(
            folder / "consumerOffset.json",
            bodies.ConsumerOffsetWrapper,
            tasks,
            lambda: bodies.ConsumerOffsetWrapper(
                data_version=state.offsets.version, offset_table=state.offsets.snapshot()
            ),
        )
        self.modes = SavedTable(
            folder / "messageRequestMode.json",
            bodies.MessageRequestModes,
            tasks,
            lambda: bodies.MessageRequestModes(message_request_mode_map=state.request_modes.table),
        )
        self.delays = SavedTable(
            folder / "delayOffset.json",
            DelayOffsets,
            tasks,
            lambda: self._delay_offsets,
        )
        self.filters = SavedTable(
            folder / "consumerFilter.json", SavedFilters, tasks, state.filters.snapshot
        )
        self.python_filters = SavedTable(
            folder / "pythonFilter.json",
            SavedPythonFilters,
            tasks,
            lambda: saved_of(state.filter_server.all()),
        )
        self.sequences = SavedTable(
            folder / "firearrowProducers.json",
            SavedSequences,
            tasks,
            lambda: self._sequences,
            is_ours=True,
        )
        self._open_transactions = bodies.TransactionMetrics()
        self._counted: dict[str, int] | None = None  # as they were written last
        self.transactions = SavedTable(
            folder / "transactionMetrics",
            bodies.TransactionMetrics,
            tasks,
            lambda: self._open_transactions,
        )

    def load(self) -> None:
        """What the last broker wrote, and what is always there."""
        state = self._state
        topics = self.topics.load()
        if topics is not None:
            state.topics.load(topics.topic_config_table, topics.data_version)
        state.topics.create_built_in(state.config)
        groups = self.groups.load()
        if groups is not None:
            state.groups.load(
                groups.subscription_group_table, groups.forbidden_table or {}, groups.data_version
            )
        state.groups.create_built_in()
        offsets = self.offsets.load()
        if offsets is not None:
            state.offsets.load(offsets.offset_table, offsets.data_version)
        filters = self.filters.load()
        if filters is not None:
            state.filters.load(filters)
        python_filters = self.python_filters.load()
        if python_filters is not None:
            state.filter_server.load(taken_from(python_filters))
        modes = self.modes.load()
        if modes is not None:
            state.request_modes.load(modes)
        for table in (self.topics, self.groups):
            table.write()

    def load_deliveries(self, followed_bytes: int = 0) -> None:
        """What a master goes on with: saved by the last one on this directory, or followed.

        Of so much log at its end, or of more, it is found out who sent what.
        """
        state = self._state
        state.delays.load(self.delays.load())
        state.transactions.load()
        self._load_sequences(followed_bytes)
        state.timers.load()

    def load_as_slave(self) -> None:
        """A slave only keeps them for the day when it is a master."""
        begins = self._state.store.replica.min_offset == 0  # then the log itself has them all
        saved = self.delays.load() or DelayOffsets(log_offset=0 if begins else None)
        self._state.delays.follow(saved)

    def _load_sequences(self, followed_bytes: int) -> None:
        """Who sent what, as of the last save, and what the log says behind that."""
        store, recovered = self._state.store, self._state.store.recovered
        saved, end = self.sequences.load(), store.statistics().end_offset
        if followed_bytes:
            if saved is not None and saved.log_offset <= end:
                self._state.sequences.load(saved, end)
            self._state.sequences.follow(store.scan(max(0, end - followed_bytes)))
        elif saved is not None:
            self._state.sequences.load(saved, end)
            self._state.sequences.follow(
                store.scan(max(saved.log_offset, end - FOLLOWED_BYTES_MAX))
            )
        elif recovered is not None and not recovered.clean:
            self._state.sequences.follow(store.scan(recovered.scanned_from))

    # --- life -------------------------------------------------------------------------------

    def keep(self) -> None:
        """Save everything now and then."""
        config, tasks = self._state.config, self._tasks
        tasks.every(
            config.flush_consumer_offset_interval, self._save_offsets_soon, name="save-offsets"
        )
        tasks.every(config.flush_delay_offset_interval, self.save_delays_soon, name="save-delays")
        tasks.every(config.flush_filter_data_interval, self._save_filters_soon, name="save-filters")
        tasks.every(
            config.flush_delay_offset_interval, self._save_sequences_soon, name="save-sequences"
        )
        tasks.every(
            config.transaction_metric_flush_interval,
            self._save_transactions_soon,
            name="save-transactions",
        )

    def save_soon(self) -> None:
        """What follows the log, as it is after a start."""
        self.save_delays_soon()
        self._save_sequences_soon()

    async def settle(self) -> None:
        """Wait for what is being written, and begin nothing new."""
        for table in self._all():
            await table.settle()

    def save_now(self) -> None:
        """At the end of a broker's life, when its log is on disk. Blocks."""
        state = self._state
        self._take_offsets()
        self._take_filters()
        self._take_transactions()
        store = state.store.statistics()
        is_final = state.replication.confirm_offset >= store.end_offset
        if store.flushed_offset >= store.end_offset and is_final:
            self._take_delays(state.delays.snapshot())
            if not self._is_slave:
                self._take_sequences(state.sequences.snapshot(store.end_offset))
        for table in self._all():
            with contextlib.suppress(OSError):
                table.save_now()

    @property
    def _is_slave(self) -> bool:
        return self._state.config.broker_role is BrokerRole.SLAVE

    def _all(self) -> Iterable[SavedTable[Any]]:
        return (
            self.topics,
            self.groups,
            self.offsets,
            self.delays,
            self.filters,
            self.python_filters,
            self.sequences,
            self.modes,
            self.transactions,
        )

    def _take_transactions(self) -> None:
        """How many are open we know from the log; Apache's broker has only what is written here."""
        counts, now_ms = self._state.transactions.halves.by_topic, self._state.clock.now_ms()
        if self._is_slave or counts == self._counted:
            return
        self._counted = dict(counts)
        self._open_transactions = bodies.TransactionMetrics(
            data_version=self._open_transactions.data_version.next_version(now_ms),
            transaction_count={
                topic: bodies.TimerMetric(count=count, time_stamp=now_ms)
                for topic, count in counts.items()
            },
        )
        self.transactions.changed()

    def _save_transactions_soon(self) -> None:
        self._take_transactions()
        self.transactions.save_soon()

    def _take_filters(self) -> None:
        self._state.filters.forget_old()
        if self._state.filters.changed:
            self._state.filters.changed = False
            self.filters.changed()

    def _save_filters_soon(self) -> None:
        self._take_filters()
        self.filters.save_soon()

    def _take_offsets(self) -> None:
        if self._state.offsets.changed:
            self._state.offsets.changed = False
            self.offsets.changed()

    def _save_offsets_soon(self) -> None:
        self._take_offsets()
        self.offsets.save_soon()
        self.topics.save_soon()
        self.groups.save_soon()
        self.modes.save_soon()

    def save_delays_soon(self) -> None:
        """Save how far delayed messages are, once the log is on disk as far."""
        if not self._state.delays.changed:
            self.delays.save_soon()  # what could not be written last time
            return
        taken = self._state.delays.snapshot()

        def tell(on_disk: bool) -> None:  # noqa: FBT001
            if on_disk:
                self._take_delays(taken)
                self.delays.save_soon()

        self._state.store.replica.when_final(taken.log_offset or 0, tell)

    def _take_delays(self, taken: DelayOffsets) -> None:
        self._delay_offsets = taken
        self.delays.changed()

    def _save_sequences_soon(self) -> None:
        """Save who sent what, once the log is on disk as far as the table covers it."""
        end = self._state.store.statistics().end_offset
        if end == self._sequences.log_offset or self._is_slave:
            self.sequences.save_soon()
            return
        taken = self._state.sequences.snapshot(end)

        def tell(on_disk: bool) -> None:  # noqa: FBT001
            if on_disk:
                self._take_sequences(taken)
                self.sequences.save_soon()

        self._state.store.replica.when_final(end, tell)

    def _take_sequences(self, taken: SavedSequences) -> None:
        self._sequences = taken
        self.sequences.changed()
