"""A store directory seen from outside: Apache's or ours, running, stopped or damaged.

The tools behind `firearrow store` use it; the broker never does. Nothing here writes to files that
hold messages, and nothing raises on damaged content: what is not there or makes no sense is simply
not returned, and `check.py` says so in words.

    commitlog/00000000000000000000                 records of all topics, see `log_walk.py`
    consumequeue/<topic>/<queue id>/000000…        units of 20 bytes, see `derived.py`
    batchconsumequeue/<topic>/<queue id>/000000…   units of 46 bytes
    index/20261115085555480                        see `index_files.py`
    checkpoint                                     up to where everything was written
    abort                                          there while a broker runs, or after it crashed
    lock                                           held while a broker runs
    config/*.json                                  topics and offsets, see `config_tables.py`
"""

from __future__ import annotations

import fcntl
import itertools
import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.model.delay import DELAY_LEVELS, parse_delay_levels
from firearrow.offline.derived import (
    BATCH_UNIT,
    LMQ_PREFIX,
    QueueKey,
)
from firearrow.offline.index_files import IndexTable, open_tables
from firearrow.offline.log_walk import LogFile, LogWalk, OpenLogFile
from firearrow.offline.output import give_to_owner_of
from firearrow.offline.unit_files import UnitFiles
from firearrow.store.checkpoint import Checkpoint
from firearrow.store.consume_queue import ENTRY as UNIT
from firearrow.store.errors import StoreInUse
from firearrow.store.key_index import ENTRIES_DEFAULT, SLOTS_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from firearrow.hot import ScannedRecord

SEGMENT_BYTES_DEFAULT: Final = 1 << 30
QUEUE_FILE_BYTES_DEFAULT: Final = 300_000 * UNIT.size
BATCH_QUEUE_FILE_BYTES_DEFAULT: Final = 300_000 * BATCH_UNIT.size
_NAME_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Shape:
    """What the broker's settings say about its files; None is found out from the files."""

    commit_log: tuple[Path, ...] = ()
    segment_bytes: int | None = None
    queue_file_bytes: int | None = None
    batch_queue_file_bytes: int | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    delay_levels_ms: tuple[int, ...] = parse_delay_levels(DELAY_LEVELS)

    @classmethod
    def of_settings(cls, values: Mapping[str, str]) -> Shape:
        """Out of a broker's configuration; settings that do not shape files are ignored."""

        def number(name: str) -> int | None:
            text = values.get(name, "").strip()
            if not text:
                return None
            if not text.isdecimal() or int(text) <= 0:
                raise ConfigError(f"{name}={text}: a number above 0 expected")
            return int(text)

        delays = parse_delay_levels(values.get("messageDelayLevel", DELAY_LEVELS))
        folders = values.get("storePathCommitLog", "").split(",")
        return cls(
            commit_log=tuple(Path(folder.strip()) for folder in folders if folder.strip()),
            segment_bytes=number("mappedFileSizeCommitLog"),
            queue_file_bytes=number("mappedFileSizeConsumeQueue"),
            batch_queue_file_bytes=number("mapperFileSizeBatchConsumeQueue"),
            index_slots=number("maxHashSlotNum"),
            index_entries=number("maxIndexNum"),
            delay_levels_ms=delays,
        )


class StoreDirectory:
    """A store's files as they are found, read-only."""

    def __init__(self, root: Path, shape: Shape | None = None) -> None:
        shape = shape or Shape()
        self.root = root
        self.delay_levels_ms = shape.delay_levels_ms
        self._shape = shape
        folders = shape.commit_log or (root / "commitlog",)
        if not any(folder.is_dir() for folder in folders):
            missing = " or ".join(str(folder) for folder in folders)
            raise ConfigError(
                f"{root} is not a store directory: {missing} does not exist. Give the directory "
                "that the broker has as storePathRootDir (and -c with its configuration, if that "
                "sets storePathCommitLog)"
            )
        self.log_files = offset_files(folders)
        self.segment_bytes = shape.segment_bytes or _likely_segment_bytes(self.log_files)

    # --- commit log ---------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        return self.log_files[0].first_offset if self.log_files else 0

    def walk(
        self,
        *,
        first_offset: int = 0,
        end_offset: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> LogWalk:
        """Every record of the files that overlap this range of offsets, damage in between."""
        return LogWalk(
            self.log_files,
            segment_bytes=self.segment_bytes,
            first_offset=first_offset,
            end_offset=end_offset,
            progress=progress,
        )

    def walk_file(self, first_offset: int) -> LogWalk:
        """The same for one file, by its first offset, as a part of the whole."""
        return LogWalk(self.log_files, segment_bytes=self.segment_bytes, only=first_offset)

    def record_at(self, offset: int) -> ScannedRecord | None:
        """The sound record that begins at this offset, if there is one."""
        for file in self.log_files:
            at = offset - file.first_offset
            if 0 <= at < file.size:
                try:
                    with OpenLogFile(file, self.segment_bytes) as opened:
                        found = opened.single(at).records
                except OSError:
                    return None
                return found[0] if found else None
        return None

    # --- consume queues -----------------------------------------------------------------------

    @cached_property
    def queues(self) -> dict[QueueKey, list[LogFile]]:
        """Every queue that has a folder, with its files."""
        found = {}
        for name, is_batch in (("consumequeue", False), ("batchconsumequeue", True)):
            for topic in _folders(self.root / name):
                for folder in _folders(topic):
                    if (number := _number(folder.name)) is not None:
                        key = QueueKey(topic.name, number, is_batch)
                        found[key] = offset_files([folder])
        return dict(sorted(found.items()))

    @cached_property
    def queue_file_bytes(self) -> int:
        return self._shape.queue_file_bytes or self._likely_queue_bytes(
            QUEUE_FILE_BYTES_DEFAULT, is_batch=False
        )

    @cached_property
    def batch_queue_file_bytes(self) -> int:
        return self._shape.batch_queue_file_bytes or self._likely_queue_bytes(
            BATCH_QUEUE_FILE_BYTES_DEFAULT, is_batch=True
        )

    def _likely_queue_bytes(self, default: int, *, is_batch: bool) -> int:
        sizes = [
            file.size
            for key, files in self.queues.items()
            if key.is_batch == is_batch
            for file in files
        ]
        found = _most_common([size for size in sizes if size > 0]) or default
        unit_bytes = BATCH_UNIT.size if is_batch else UNIT.size
        return found if found % unit_bytes == 0 else default

    def units_of(self, key: QueueKey) -> UnitFiles:
        file_bytes = self.batch_queue_file_bytes if key.is_batch else self.queue_file_bytes
        return UnitFiles(self.queues.get(key, []), unit_bytes=key.unit_bytes, file_bytes=file_bytes)

    @property
    def has_light_queues(self) -> bool:
        """Whether light queues (LMQ) were ever switched on here."""
        return (
            any(key.topic.startswith(LMQ_PREFIX) for key in self.queues)
            or (self.root / "config" / "lmqConsumerOffset.json").exists()
        )

    @property
    def has_rocksdb_queues(self) -> bool:
        """Whether the broker ran with storeType=defaultRocksDB, whose queues are no files."""
        return (self.root / "consumequeue" / "CURRENT").is_file()

    # --- index, checkpoint, signs of life -------------------------------------------------------

    @cached_property
    def index_tables(self) -> list[IndexTable]:
        """The index files, oldest first."""
        paths = [path for path in _files(self.root / "index") if _number(path.name) is not None]
        shape = None
        if self._shape.index_slots and self._shape.index_entries:
            shape = (self._shape.index_slots, self._shape.index_entries)
        return open_tables(paths, shape=shape)

    @property
    def index_shape(self) -> tuple[int, int]:
        """Slots and entries of an index file: as set, as most files have, or by default."""
        if self._shape.index_slots and self._shape.index_entries:
            return self._shape.index_slots, self._shape.index_entries
        shapes = Counter(table.shape for table in self.index_tables if table.shape is not None)
        if shapes:
            return shapes.most_common(1)[0][0]
        return SLOTS_DEFAULT, ENTRIES_DEFAULT

    @property
    def checkpoint(self) -> Checkpoint | None:
        try:
            return Checkpoint.decode((self.root / "checkpoint").read_bytes())
        except OSError:
            return None

    @property
    def has_abort(self) -> bool:
        return (self.root / "abort").exists()

    @property
    def is_locked(self) -> bool:
        """Whether a broker runs on this directory right now.

        Closing the file lets go of every lock that *this* process has on it, so never ask from
        inside a broker.
        """
        try:
            with (self.root / "lock").open("rb") as file:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)
        except BlockingIOError:
            return True
        except OSError:  # no such file: no broker ever ran here
            return False
        return False


@contextmanager
def hold_lock(root: Path) -> Iterator[None]:
    """Keep brokers out, the way they keep each other out; raises StoreInUse if one is in."""
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        give_to_owner_of(root, root / "lock")
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except BlockingIOError:
            raise StoreInUse(
                f"{root} is in use: a broker holds {root / 'lock'}. Stop it first"
            ) from None
        os.pwrite(descriptor, b"lock", 0)
        yield
    finally:
        os.close(descriptor)


def offset_files(folders: Iterable[Path]) -> list[LogFile]:
    """Files named by the offset of their first byte, in order; anything else is not ours."""
    found = []
    for folder in folders:
        for path in _files(folder):
            if len(path.name) == _NAME_DIGITS and (offset := _number(path.name)) is not None:
                try:
                    found.append(LogFile(path, offset, path.stat().st_size))
                except OSError:  # a running broker deleted it just now
                    continue
    return sorted(found, key=lambda file: file.first_offset)


def _number(name: str) -> int | None:
    """A file or folder name that is an offset or a queue; None for any other name."""
    if not (name.isascii() and name.isdecimal()) or len(name) > _NAME_DIGITS:
        return None
    return int(name) if int(name) < 1 << 63 else None


def _likely_segment_bytes(files: Sequence[LogFile]) -> int:
    """The size that most files have, or most neighbours are apart: one of them may be damaged."""
    gaps = [b.first_offset - a.first_offset for a, b in itertools.pairwise(files)]
    sizes = [file.size for file in files]
    return _most_common([size for size in sizes + gaps if size > 0]) or SEGMENT_BYTES_DEFAULT


def _most_common(numbers: Sequence[int]) -> int | None:
    counted = Counter(numbers)
    return max(counted, key=lambda number: (counted[number], number), default=None)


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
