"""Store directories for tests: small, complete, and of known content."""

from __future__ import annotations

import atexit
import copy
import json
import shutil
import struct
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from firearrow.hot import Record, crc31, encode_record
from firearrow.model.delay import DELAY_LEVELS, parse_delay_levels
from firearrow.offline.directory import Shape, StoreDirectory
from firearrow.offline.rebuild import rebuild
from firearrow.store.checkpoint import Checkpoint

START_MS = 1_794_732_955_000
STEP_MS = 700  # between two records: some share a second, some do not
BLANK = struct.Struct(">iI")
SHAPE = Shape(
    segment_bytes=2048,
    queue_file_bytes=5 * 20,
    batch_queue_file_bytes=4 * 46,
    index_slots=10,
    index_entries=8,
)


@dataclass
class Stored:
    """Where a record went."""

    topic: str
    queue_id: int
    queue_offset: int
    offset: int
    size: int
    timestamp: int


class StoreBuilder:
    """Append records, then `close`; what is derived from them is made by a rebuild."""

    def __init__(self, root: Path, shape: Shape = SHAPE) -> None:
        assert shape.segment_bytes is not None
        self.root = root
        self.shape = shape
        self.segment_bytes = shape.segment_bytes
        self.log = bytearray()
        self.stored: list[Stored] = []
        self.topics: dict[str, dict[str, Any]] = {}
        self.consumed: dict[str, dict[str, int]] = {}
        self.delayed: dict[str, int] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._now_ms = START_MS

    def topic(self, name: str, queues: int = 2, **attributes: str) -> None:
        self.topics[name] = {
            "topicName": name,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "attributes": {key.replace("_", "."): value for key, value in attributes.items()},
        }

    def append(
        self,
        topic: str = "Orders",
        queue_id: int = 0,
        body: bytes = b"body",
        properties: dict[str, str] | None = None,
        *,
        queue_offset: int | None = None,
        takes: int = 1,
        crc: bool = False,
        timestamp: int | None = None,
        **fields: Any,
    ) -> Stored:
        if topic not in self.topics and not topic.startswith(("RMQ_SYS", "rmq_sys", "SCHEDULE")):
            self.topic(topic)
        self._now_ms += STEP_MS
        text = "".join(f"{key}\x01{value}\x02" for key, value in (properties or {}).items())
        record = Record(
            topic,
            body,
            text + ("__CRC32#\x010000000000\x02" if crc else ""),
            queue_id=queue_id,
            queue_offset=self._next.get((topic, queue_id), 0)
            if queue_offset is None
            else queue_offset,
            born_timestamp=self._now_ms,
            store_timestamp=self._now_ms if timestamp is None else timestamp,
            **fields,
        )
        self._make_room(len(encode_record(record)))
        record.physical_offset = len(self.log)
        raw = encode_record(record)
        if crc:
            digits = f"{crc31(raw[:-20]):010d}"[::-1].encode()
            raw = raw[:-11] + digits + raw[-1:]
        self.log += raw
        if not record.sys_flag & 0x4:
            self._next[topic, queue_id] = record.queue_offset + takes
        stored = Stored(
            topic,
            queue_id,
            record.queue_offset,
            record.physical_offset,
            len(raw),
            record.store_timestamp,
        )
        self.stored.append(stored)
        return stored

    def forget(self, topic: str) -> None:
        """Delete a topic: its queues start again at 0."""
        self._next = {key: offset for key, offset in self._next.items() if key[0] != topic}

    def _make_room(self, size: int) -> None:
        left = self.segment_bytes - len(self.log) % self.segment_bytes
        if size + BLANK.size > left:
            self.log += BLANK.pack(left, 0xCBD43194) + bytes(left - BLANK.size)

    def write_log(self) -> None:
        folder = self.root / "commitlog"
        folder.mkdir(parents=True)
        for start in range(0, len(self.log), self.segment_bytes):
            part = bytes(self.log[start : start + self.segment_bytes])
            (folder / f"{start:020d}").write_bytes(part.ljust(self.segment_bytes, b"\0"))

    def close(self) -> StoreDirectory:
        """A store that was stopped cleanly."""
        self.write_log()
        newest = max(stored.timestamp for stored in self.stored)
        (self.root / "checkpoint").write_bytes(Checkpoint(newest, newest, 0).encode())
        write_json(self.root, "topics", {"topicConfigTable": self.topics})
        write_json(self.root, "consumerOffset", {"offsetTable": self.consumed})
        write_json(self.root, "delayOffset", {"offsetTable": self.delayed})
        rebuild(self.open())
        return self.open()

    def open(self) -> StoreDirectory:
        return StoreDirectory(self.root, self.shape)


def write_json(root: Path, name: str, content: object) -> None:
    path = root / "config" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def patch(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def inner_batch(*bodies: bytes) -> bytes:
    """Messages packed into one body, as a producer does for a batch topic."""
    parts = []
    for number, body in enumerate(bodies):
        text = f"KEYS\x01inner-{number}\x02".encode()
        size = 20 + len(body) + 2 + len(text)
        parts += [struct.pack(">iiiii", size, 0, 0, number, len(body)), body]
        parts += [struct.pack(">h", len(text)), text]
    return b"".join(parts)


@dataclass
class Sample:
    """A store with something of everything, and where to find it."""

    builder: StoreBuilder
    half: Stored
    commit: Stored
    op: Stored
    checked: Stored  # has a checksum of its own
    keyless: Stored
    delayed: Stored
    timed: Stored
    last: Stored

    @property
    def root(self) -> Path:
        return self.builder.root

    def open(self) -> StoreDirectory:
        return self.builder.open()

    def patch_log(self, offset: int, content: bytes) -> None:
        start = offset - offset % self.builder.segment_bytes
        patch(self.root / "commitlog" / f"{start:020d}", offset - start, content)

    def patch_unit(self, folder: str, number: int, content: bytes, at: int = 0) -> None:
        start = number * 20 // 100 * 100
        path = self.root / "consumequeue" / folder / f"{start:020d}"
        if not path.exists():
            path.write_bytes(bytes(100))
        patch(path, number * 20 - start + at, content)

    @property
    def index(self) -> list[Path]:
        return sorted((self.root / "index").iterdir())


def sample_store(root: Path) -> Sample:
    """A copy: made once, since making one waits for the disk."""
    sample = _template()
    shutil.copytree(sample.root, root, dirs_exist_ok=True)
    builder = copy.deepcopy(sample.builder)
    builder.root = root
    return replace(sample, builder=builder)


@cache
def _template() -> Sample:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    root = Path(folder.name)
    builder = StoreBuilder(root)
    builder.topic("Batches", 1, queue_type="BatchCQ")
    timed = builder.append(
        "rmq_sys_wheel_timer", properties={"TIMER_OUT_MS": str(START_MS + 60_000)}
    )
    half = builder.append(
        "RMQ_SYS_TRANS_HALF_TOPIC",
        properties={"REAL_TOPIC": "Paid", "REAL_QID": "1", "UNIQ_KEY": "U-half"},
    )
    for number in range(28):
        tags = {"TAGS": f"Tag{number % 3}"} if number % 2 else {}
        keys = {"KEYS": f"k{number} all"} if number % 4 else {}
        builder.append("Orders", number % 2, b"order %d" % number * 9, {**tags, **keys})
    keyless = builder.append("Orders", 0, b"no key")
    commit = builder.append(
        "Paid",
        1,
        properties={"REAL_TOPIC": "Paid", "REAL_QID": "1", "UNIQ_KEY": "U-half"},
        sys_flag=0x8,
        prepared_offset=half.offset,
    )
    op = builder.append("RMQ_SYS_TRANS_OP_HALF_TOPIC", body=b"0,", properties={"TAGS": "d"})
    checked = builder.append("Checked", properties={"KEYS": "c"}, crc=True)
    delayed = builder.append("SCHEDULE_TOPIC_XXXX", 2, properties={"DELAY": "3", "KEYS": "d"})
    builder.append(
        "Batches",
        body=inner_batch(b"one", b"two", b"three"),
        properties={"INNER_NUM": "3", "INNER_BASE": "0", "UNIQ_KEY": "U-batch"},
        sys_flag=0xC0,
        takes=3,
    )
    builder.append("Batches", body=b"alone")
    builder.append("Old", sys_flag=0x4, properties={"UNIQ_KEY": "U-prepared"})
    builder.append("Orders", 1, b"big" * 300, {"KEYS": "big"})
    last = builder.append("Orders", 0, b"last", {"KEYS": "last"})
    builder.consumed = {
        "Orders@readers": {"0": 16, "1": 3},
        "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 1},
    }
    builder.delayed = {"3": 1}
    builder.close()
    _write_timer(root, timed)
    return Sample(builder, half, commit, op, checked, keyless, delayed, timed, last)


def _write_timer(root: Path, timed: Stored) -> None:
    """One slot of the wheel with one entry of the timer log, due a minute later."""
    due_s = START_MS // 1000 + 60
    wheel = bytearray(100 * 32)
    struct.pack_into(">qqqii", wheel, due_s % 100 * 32, due_s, 0, 0, 1, 0)
    (root / "timerwheel").write_bytes(wheel)
    entry = struct.pack(">iqiqiqiiq", 52, -1, 1, START_MS, 60_000, timed.offset, timed.size, 0, 0)
    (root / "timerlog").mkdir()
    (root / "timerlog" / f"{0:020d}").write_bytes(entry.ljust(520, b"\0"))


def delay_ms(level: int) -> int:
    return parse_delay_levels(DELAY_LEVELS)[level - 1]
