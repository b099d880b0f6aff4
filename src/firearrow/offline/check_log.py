"""The commit log's own rules: its files, and what records say about themselves and each other."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from firearrow.hot import crc31, decode_properties, decode_record
from firearrow.model.message import (
    FLAG_TRANSACTION,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
)
from firearrow.model.topic import HALF_TOPIC, OP_HALF_TOPIC
from firearrow.offline.derived import int_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firearrow.hot import ScannedRecord
    from firearrow.offline.derived import Jump
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.findings import Findings
    from firearrow.offline.log_walk import Batch, Damage

# A clock may be set back a little; beyond that, looking up offsets by time goes wrong.
CLOCK_STEP_MS_MAX: Final = 60_000
CRC_PROPERTY: Final = "__CRC32#"
_CRC_BYTES: Final = len(CRC_PROPERTY) + 12  # 01, ten digits, 02: always the end of a record
_CRC_DIGITS: Final = 10


class LostBytes:
    """Parts of the log that are damaged or missing, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._first_hidden: int | None = None

    def add(self, start: int, stop: int, *, hides: bool = True) -> None:
        """`hides` if records may have been there."""
        if hides and (self._first_hidden is None or start < self._first_hidden):
            self._first_hidden = start
        if not self._starts or start >= self._starts[-1]:
            self._starts.append(start)
            self._stops.append(stop)
        else:
            at = bisect_right(self._starts, start)
            self._starts.insert(at, start)
            self._stops.insert(at, stop)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._stops[at]

    def __bool__(self) -> bool:
        return bool(self._starts)

    def hides_before(self, offset: int) -> bool:
        """Whether records before this offset may be among what is lost."""
        return self._first_hidden is not None and self._first_hidden < offset


class LogCheck:
    """Rules C1 to C9. Follows the log; `lost` grows with each damage that it is told of.

    It may follow only a part of the log, from a place where nothing is known of what is before.
    """

    def __init__(self, store: StoreDirectory, findings: Findings) -> None:
        self.lost = LostBytes()
        self.last_timestamp = 0
        self.halves: list[tuple[int, int, str]] = []  # half at, committed at, what is wrong
        self._store = store
        self._findings = findings

    # --- files --------------------------------------------------------------------------------

    def check_files(self) -> None:
        """Names and sizes; to be called before the log is followed."""
        files, segment_bytes = self._store.log_files, self._store.segment_bytes
        for file in files:
            # A crash may come between making a file and giving it its size: brokers remove it.
            if file.size != segment_bytes and (file.size or file is not files[-1]):
                what = f"has {file.size} bytes; {segment_bytes} expected"
                self._findings.add("C1", f"commitlog/{file.path.name}", what)
                self.lost.add(
                    file.first_offset + min(file.size, segment_bytes),
                    file.first_offset + segment_bytes,
                )
        for before, file in itertools.pairwise(files):
            expected = before.first_offset + segment_bytes
            if file.first_offset != expected:
                what = f"follows a file that ends at {expected}"
                self._findings.add("C1", f"commitlog/{file.path.name}", what)
                self.lost.add(expected, file.first_offset)

    def take_damage(self, damage: Damage) -> None:
        """Bytes that are no records; the walk says which rule they break."""
        what = f"{damage.size} bytes cannot be read: {damage.reason}"
        if not self._is_cut_short(damage):
            self._add(damage.code, damage.offset, what)
        self.lost.add(damage.offset, damage.offset + damage.size)

    def _is_cut_short(self, damage: Damage) -> bool:
        """Whether this is the end of a file that is too short, of which C1 has told."""
        end = damage.offset + damage.size
        return any(
            file.first_offset + file.size == end and file.size < self._store.segment_bytes
            for file in self._store.log_files
        )

    # --- records ------------------------------------------------------------------------------

    def take(self, batch: Batch, record: ScannedRecord, properties: Mapping[str, str]) -> None:
        timestamp = record.store_timestamp
        if timestamp < self.last_timestamp - CLOCK_STEP_MS_MAX or timestamp <= 0:
            self.check_time(timestamp, record.physical_offset)
        self.last_timestamp = timestamp
        if record.sys_flag & FLAG_TRANSACTION:
            self._check_transaction(record, properties)
        if CRC_PROPERTY in properties:
            self._check_crc(batch, record)
        if "\ufffd" in record.properties or "\ufffd" in record.topic:
            self._check_text(batch, record)
        if record.topic == OP_HALF_TOPIC:
            self._check_op_body(batch, record)

    def take_jump(self, jump: Jump) -> None:
        """A record whose queue offset does not follow the one before it in its queue."""
        # At 0 the topic was made again. Behind damage, the records between may have been there.
        if not jump.is_wrong and (jump.offset == 0 or self.lost.hides_before(jump.physical)):
            return
        key = jump.key
        what = f"{key.topic} queue {key.queue_id} goes on with queue offset {jump.offset}"
        self._add("C6", jump.physical, f"{what} where {jump.expected} follows")
        if jump.is_wrong:  # nobody can find it by its queue
            self.lost.add(jump.physical, jump.physical + jump.size, hides=False)

    def check_time(self, timestamp: int, offset: int) -> None:
        """A record's store time against `last_timestamp`, that of the record before it."""
        if timestamp <= 0:
            self._add("C5", offset, f"store time is {timestamp}")
        elif timestamp < self.last_timestamp - CLOCK_STEP_MS_MAX:
            back = self.last_timestamp - timestamp
            what = f"store time {timestamp} is {back} ms before the record before it"
            self._add("C5", offset, what)

    def finish(self) -> None:
        """The log is through: what is lost is known."""
        for half_at, offset, what in self.halves:
            if half_at not in self.lost:
                self._add("C8", offset, what)

    def _check_transaction(self, record: ScannedRecord, properties: Mapping[str, str]) -> None:
        if record.sys_flag & TRANSACTION_PREPARED:
            if record.queue_offset:
                what = f"not committed, and yet it has queue offset {record.queue_offset}"
                self._add("C7", record.physical_offset, what)
            return
        assert record.sys_flag & FLAG_TRANSACTION == TRANSACTION_COMMIT
        half_at = record.prepared_offset
        # Retries and delayed deliveries of such a message keep the flag and lose the offset.
        if not half_at or half_at < self._store.min_offset:
            return
        half = self._store.record_at(half_at) if half_at < record.physical_offset else None
        if half is None or half.topic != HALF_TOPIC:
            what = f"of a committed transaction, but its half is not at {half_at}"
            self.halves.append((half_at, record.physical_offset, what))
            return
        prepared = decode_properties(half.properties)
        for name in (REAL_TOPIC, REAL_QUEUE_ID):
            if prepared.get(name) != properties.get(name):
                what = f"has {name} {properties.get(name)!r}, its half {prepared.get(name)!r}"
                self.halves.append((half_at, record.physical_offset, what))

    def _check_crc(self, batch: Batch, record: ScannedRecord) -> None:
        raw = batch.raw(record)
        tail = raw[-_CRC_BYTES:]
        if not tail.startswith(CRC_PROPERTY.encode() + b"\x01"):
            return  # somewhere else it is a user's own property
        # The least significant digit comes first.
        expected = f"{crc31(raw[:-_CRC_BYTES]):0{_CRC_DIGITS}d}"[::-1].encode()
        found = tail[len(CRC_PROPERTY) + 1 : -1]
        if found != expected:
            what = (
                f"checksum digits {found.decode('ascii', 'replace')}, computed {expected.decode()}"
            )
            self._add("C9", record.physical_offset, what)

    def _check_text(self, batch: Batch, record: ScannedRecord) -> None:
        """Readers replace what is not UTF-8, and people send the replacement: look at the bytes."""
        raw = batch.raw(record)
        for name, text in (("topic is", record.topic), ("properties are", record.properties)):
            if "\ufffd" in text and text.encode() not in raw:
                self._add("C3", record.physical_offset, f"its {name} not UTF-8")

    def _check_op_body(self, batch: Batch, record: ScannedRecord) -> None:
        body = decode_record(batch.data, record.position).body.decode("utf-8", "replace")
        if any(int_of(part) is None for part in body.split(",") if part):
            what = f"op message whose body is no list of offsets: {body[:60]!r}"
            self._findings.add("O3", f"commitlog {record.physical_offset}", what)

    def _add(self, code: str, offset: int, what: str) -> None:
        self._findings.add(code, f"commitlog {offset}", what)
