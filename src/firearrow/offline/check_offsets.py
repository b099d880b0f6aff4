"""Offsets that a broker keeps beside the log: how far groups have read, what is delivered.

They are compared with where the queues end, which `check_queues.py` knows once the log is through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.model.topic import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
)
from firearrow.offline.derived import QueueKey
from firearrow.store.consume_queue import ENTRY as UNIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firearrow.offline.config_tables import ConfigTables
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.findings import Findings

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
CHECKPOINT_SLACK_MS: Final = 3_000  # as much as brokers allow for clocks that step back
_CODES: Final = {
    "topics.json": "O5",
    "consumerOffset.json": "O1",
    "lmqConsumerOffset.json": "O1",
    "delayOffset.json": "O2",
}


class OffsetsCheck:
    """Rules O1 to O5."""

    def __init__(
        self,
        store: StoreDirectory,
        tables: ConfigTables,
        findings: Findings,
        max_offsets: Mapping[tuple[str, int], int],
    ) -> None:
        self._store = store
        self._tables = tables
        self._findings = findings
        self._max_offsets = max_offsets

    # `newest_ms` is None if the newest record may be lost.
    def check(self, *, end_offset: int, newest_ms: int | None, now_ms: int) -> None:
        for name, problem in self._tables.problems.items():
            what = f"cannot be read, nor can its .bak: {problem}"
            self._findings.add(_CODES[name], f"config/{name}", what)
        self._check_consumers()
        self._check_delays(now_ms)
        self._check_checkpoint(end_offset, newest_ms)
        self._check_topics()

    def _check_consumers(self) -> None:
        for name, offsets in sorted(self._tables.consumer_offsets.items()):
            topic, _, group = name.partition("@")
            if not self._tables.has_topic(topic):
                continue  # deleted; older brokers keep its offsets
            code = "O1"
            if group == TRANSACTION_GROUP and topic in {HALF_TOPIC, OP_HALF_TOPIC}:
                code = "O3"
            for queue_id, offset in sorted(offsets.items()):
                end = self._max_offsets.get((topic, queue_id), 0)
                if offset > end:
                    what = f"{name} queue {queue_id} goes on at {offset}; the queue ends at {end}"
                    self._findings.add(code, "config/consumerOffset.json", what)

    def _check_delays(self, now_ms: int) -> None:
        for level, offset in sorted(self._tables.delay_offsets.items()):
            end = self._max_offsets.get((SCHEDULE_TOPIC, level - 1), 0)
            where = "config/delayOffset.json"
            if offset > end:
                what = f"level {level} goes on at {offset}; its queue ends at {end}"
                self._findings.add("O2", where, what)
            elif offset > 0:
                # Each level waits equally long, so the last one delivered was due last.
                units = self._store.units_of(QueueKey(SCHEDULE_TOPIC, level - 1, is_batch=False))
                _, _, due_ms = UNIT.unpack(units.read(offset - 1, 1))
                if due_ms > now_ms:
                    what = f"level {level} is past a message that is due only at {due_ms}"
                    self._findings.add("O2", where, what)

    def _check_checkpoint(self, end_offset: int, newest_ms: int | None) -> None:
        checkpoint = self._store.checkpoint
        if checkpoint is None:
            return
        for name, timestamp in (
            ("log", checkpoint.physical_ms),
            ("queues", checkpoint.queues_ms),
            ("index", checkpoint.index_ms),
        ):
            if newest_ms is not None and timestamp > newest_ms + CHECKPOINT_SLACK_MS:
                what = f"{name} written to {timestamp}; the newest record is of {newest_ms}"
                self._findings.add("O4", "checkpoint", what)
        if checkpoint.confirmed > end_offset:
            what = f"confirmed to {checkpoint.confirmed}; the log ends at {end_offset}"
            self._findings.add("O4", "checkpoint", what)

    def _check_topics(self) -> None:
        topics = self._tables.topics
        if topics is None:
            return
        for key in self._store.queues:
            config = topics.get(key.topic)
            if config is None:
                if not self._tables.has_topic(key.topic):
                    self._findings.add("O5", key.folder, "there is no such topic in topics.json")
            elif key.queue_id >= (queues := max(config.read_queue_nums, config.write_queue_nums)):
                self._findings.add("O5", key.folder, f"the topic has only {queues} queues")
