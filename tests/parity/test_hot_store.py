"""The compiled and the plain twin of what the store calls per message do the same to memory."""

from __future__ import annotations

import mmap
import os
import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firearrow.hot import reference
from firearrow.hot.reference.syncing import SYNC_REPLY, SYNC_REQUEST

if TYPE_CHECKING:
    from pathlib import Path

native: Any = pytest.importorskip(
    "firearrow.hot.native", reason="no compiled twin here: there was no C compiler at install"
)

HOST = bytes([10, 0, 0, 1, 0, 0, 42, 159])
QUEUES = [("orders", 0), ("orders", 1), ("taxi-火", 0), ("later", 0)]

names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "INNER_MULTI_DISPATCH", "WAIT", "a", ""])
values = st.text(st.sampled_from("k1 火\x01\0"), max_size=8) | st.just("k " * 70)
properties = st.lists(st.tuples(names, values), max_size=4).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
)
messages: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    queue=st.integers(0, len(QUEUES) - 1),
    body=st.binary(max_size=40),
    properties=properties,
    sys_flag=st.sampled_from([0, 0, 0, 0x4, 0x8, 0xC, 0x80]),
    store_timestamp=st.integers(1, 1 << 41),
    born_host=st.sampled_from([HOST, bytes(20)]),
    store_host=st.sampled_from([None, HOST, bytes(20)]),
)


class World:
    """A log, its queues and an index table, made by one twin."""

    def __init__(self, twin: Any, *, plain: bool = True) -> None:
        self.twin = twin
        self.log = bytearray(20_000)
        self.writer = twin.LogWriter(HOST, 1_000)
        self.writer.open(memoryview(self.log), start=5_000, position=0, room=len(self.log))
        self.queues = [
            twin.QueueTail(topic, queue, plain=plain or topic != "later") for topic, queue in QUEUES
        ]
        self.by_key = {
            twin.queue_key(queue.topic_bytes, queue.queue_id): queue for queue in self.queues
        }
        self.index = bytearray(40 + 7 * 4 + 30 * 20)
        self.table = twin.KeyTable(memoryview(self.index), 7, 30)
        self.grown: list[Any] = []

    def append(self, values: dict[str, Any]) -> int:
        queue = self.queues[values["queue"]]
        message = self.twin.StoreMessage(
            queue.topic,
            queue.queue_id,
            values["body"],
            values["properties"],
            sys_flag=values["sys_flag"],
            born_host=values["born_host"],
            store_host=values["store_host"],
        )
        end: int = self.writer.append(message, queue, values["store_timestamp"])
        return end

    def derive(self, stop: int, *, with_index: bool) -> Any:
        table = self.table if with_index else None
        return self.twin.derive_records(
            memoryview(self.log), 0, stop, 5_000, self.by_key, table, self.grown
        )

    def state(self) -> object:
        return (
            bytes(self.log),
            bytes(self.index),
            self.table.header,
            self.table.free,
            self.writer.position,
            [(q.next_offset, q.max_offset, q.tail_first, bytes(q.tail)) for q in self.queues],
            [(q.topic, q.queue_id) for q in self.grown],
        )


@given(st.lists(messages, max_size=12), st.booleans(), st.booleans(), st.data())
@settings(max_examples=200)
def test_messages_are_appended_and_derived_alike(
    many: list[dict[str, Any]], with_index: bool, plain: bool, data: st.DataObject
) -> None:
    ours, theirs = World(reference, plain=plain), World(native, plain=plain)
    for values in many:
        assert ours.append(values) == theirs.append(values)
    stop = data.draw(st.integers(0, ours.writer.position))
    if data.draw(st.booleans()):  # the index is nearly full
        ours.table.limit = theirs.table.limit = data.draw(st.integers(0, 30))
    for _ in range(data.draw(st.integers(0, 2)) if ours.writer.position else 0):
        at = data.draw(st.integers(0, ours.writer.position - 1))
        flip = data.draw(st.just(ours.log[at]) | st.integers(1, 255))
        ours.log[at] ^= flip
        theirs.log[at] ^= flip
    assert ours.derive(stop, with_index=with_index) == theirs.derive(stop, with_index=with_index)
    assert ours.state() == theirs.state()
    for checks in (
        {"check_crc": False},
        {"check_crc": True},
        {"check_crc": True, "check_torn": True},
    ):
        assert reference.check_run(ours.log, 0, stop, 5_000, **checks) == (
            native.check_run(theirs.log, 0, stop, 5_000, **checks)
        )


def test_ordinary_messages_are_derived_to_the_last() -> None:
    """Else the parity above could be that of two functions that do nothing."""
    for twin in (reference, native):
        world = World(twin)
        for number in range(20):
            world.append(
                {
                    "queue": number % 2,
                    "body": b"body",
                    "properties": f"TAGS\x01t\x02KEYS\x01k{number}\x02".encode(),
                    "sys_flag": 0,
                    "store_timestamp": 1_000 * number + 1,
                    "born_host": HOST,
                    "store_host": None,
                }
            )
        derived = world.derive(world.writer.position, with_index=True)
        assert derived == (world.writer.position, 20, 19_001)
        assert [queue.max_offset for queue in world.queues] == [10, 10, 0, 0]
        assert world.table.header[5] == 21


@given(st.binary(max_size=60), st.integers(0, 80), st.integers(0, 80))
def test_messages_that_do_not_fit_or_are_too_large_change_nothing(
    body: bytes, room: int, limit: int
) -> None:
    for twin in (reference, native):
        queue = twin.QueueTail("orders", 3)
        writer = twin.LogWriter(HOST, limit)
        memory = bytearray(300)
        writer.open(memoryview(memory), start=0, position=40, room=min(300, 140 + room))
        end = writer.append(twin.StoreMessage("orders", 3, body), queue, 9)
        size = 91 + len(body) + len("orders")
        if len(body) > limit:
            assert end == -1
        elif size > 100 + room:
            assert end == 0
        else:
            assert end == 40 + size
        if end <= 0:
            assert (writer.position, queue.next_offset, any(memory)) == (40, 0, False)
        writer.close()
        assert writer.append(twin.StoreMessage("orders", 3, b""), queue, 9) == 0


@pytest.mark.parametrize("twin", [reference, native])
def test_a_host_that_is_none_is_refused(twin: Any) -> None:
    with pytest.raises(ValueError, match="a host is 4 or 16 bytes"):
        twin.StoreMessage("orders", 0, b"", born_host=b"1234")
    with pytest.raises(ValueError, match="a host is 4 or 16 bytes"):
        twin.StoreMessage("orders", 0, b"", store_host=b"1234")


@given(
    st.lists(st.tuples(messages, st.booleans()), min_size=1, max_size=12),
    st.binary(max_size=19),
    st.fixed_dictionaries(
        {
            "most": st.integers(0, 6),
            "bytes_max": st.integers(0, 900),
            "cold_most": st.integers(0, 3),
            "cold_bytes_max": st.integers(0, 300),
            "cold_before": st.integers(0, 3_000),
            "codes": st.sampled_from([None, frozenset({7}), frozenset({-7, 0}), frozenset()]),
            "verified_from": st.integers(0, 3_000),
            "topic": st.sampled_from([topic.encode() for topic, _ in QUEUES]),
            "queue_id": st.sampled_from([queue_id for _, queue_id in QUEUES]),
            "first_offset": st.sampled_from([0, 0, 0, 1, 1 << 40]),
        }
    ),
    st.data(),
)
@settings(max_examples=200)
def test_entries_are_gathered_alike(
    many: list[tuple[dict[str, Any], bool]],
    rest: bytes,
    limits: dict[str, Any],
    data: st.DataObject,
) -> None:
    """Over two files of 1,000 bytes, with entries and records that are damaged now and then."""
    world = World(reference)
    world.writer.open(memoryview(world.log), start=0, position=0, room=1_000)
    raw = bytearray()
    for values, listed in many:
        before = world.writer.position
        if world.append(values) <= 0:
            world.writer.open(memoryview(world.log), start=0, position=1_000, room=2_000)
            continue
        if listed:
            size = world.writer.position - before
            odd = data.draw(st.sampled_from([0, 0, 0, 0, 0, 1, -5_000, 1_000_000]))
            size = data.draw(st.sampled_from([size, size, size, size, 0, -1, 0x7FFFFFFF]))
            code = data.draw(st.sampled_from([0, 7, -7, -7 & 0xFFFFFFFF, (1 << 40) + 7]))
            raw += struct.pack(">qiq", before + odd, size, code)
    if data.draw(st.booleans()) and world.writer.position:
        world.log[data.draw(st.integers(0, world.writer.position - 1))] ^= 1
    log = memoryview(bytes(world.log))
    files = {0: log[:1_000], 1_000: log[1_000:2_000]}
    if data.draw(st.booleans()):
        del files[1_000]
    given_values = {**limits, "files": files, "file_bytes": 1_000}
    expected = reference.gather_entries(bytes(raw) + rest, **given_values)
    assert native.gather_entries(bytes(raw) + rest, **given_values) == expected
    assert sum(len(piece) for piece in expected.slices) == expected.size


@given(st.lists(st.integers(0, (1 << 31) - 1), max_size=25), st.integers(1, 26), st.randoms())
def test_key_tables_are_restored_from_their_entries(
    hashes: list[int], count: int, random: Any
) -> None:
    """What a table was when it had `count` entries, out of any slots, links and header."""
    count = min(count, len(hashes) + 1)
    size = 40 + 7 * 4 + 30 * 20
    expected = bytearray(size)
    table = reference.KeyTable(memoryview(expected), 7, 30)
    for offset, hashed in enumerate(hashes[: count - 1]):
        table.insert([hashed], 0, offset, 5_000 + offset)
    wanted = table.header
    for twin in (reference, native):
        memory = bytearray(size)
        torn = twin.KeyTable(memoryview(memory), 7, 30)
        for offset, hashed in enumerate(hashes):
            torn.insert([hashed], 0, offset, 5_000 + offset)
        for at in range(40 + 7 * 4):
            memory[at] = random.randrange(256)
        assert torn.restore(count, wanted[1], begin_timestamp=wanted[0], begin_offset=wanted[2])
        assert torn.header == wanted
        used = 40 + 7 * 4 + count * 20
        assert memory[40:used] == expected[40:used]


@given(st.text(max_size=6), st.text(max_size=6))
@example("", "polygenelubricants")
def test_key_hashes_agree_and_are_never_negative(topic: str, key: str) -> None:
    assert reference.key_hash(topic, key) == native.key_hash(topic, key) >= 0


@pytest.mark.parametrize("twin", [reference, native])
def test_the_sync_thread_answers_each_request_and_ends_when_told(twin: Any, tmp_path: Path) -> None:
    requests, ask = os.pipe()
    answers, replies = os.pipe()
    thread = threading.Thread(target=twin.serve_syncs, args=(requests, replies))
    thread.start()
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x")
        os.write(ask, SYNC_REQUEST.pack(file.fileno()) + SYNC_REQUEST.pack(9_999))
        raw = b""
        while len(raw) < 2 * SYNC_REPLY.size:
            raw += os.read(answers, 64)
    os.write(ask, SYNC_REQUEST.pack(-1))
    thread.join()
    good, bad = (number for (number,) in SYNC_REPLY.iter_unpack(raw))
    assert good == 0
    assert os.strerror(bad) == "Bad file descriptor"
    for end in (requests, ask, answers, replies):
        os.close(end)


def test_memory_that_is_brought_in_stays_as_it_is(tmp_path: Path) -> None:
    size = 5 * mmap.PAGESIZE
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (size // 256))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as memory:
        for twin in (reference, native):
            for start, stop in ((0, size), (7, 9), (mmap.PAGESIZE + 1, size - 1), (3, 3)):
                twin.bring_in(memoryview(memory), start, stop)
            with pytest.raises(ValueError, match="outside a buffer"):
                twin.bring_in(b"abc", 2, 4)
        assert memory[:] == path.read_bytes()


@given(
    messages=st.lists(messages, min_size=1, max_size=6),
    names=st.lists(
        st.sampled_from([b"TAGS", b"a", b"KEYS", "火".encode(), b"none"]), max_size=4, unique=True
    ),
    at=st.integers(0, 400),
    byte=st.integers(0, 255),
)
def test_properties_of_records_have_the_same_values(
    messages: list[dict[str, Any]], names: list[bytes], at: int, byte: int
) -> None:
    for one in messages:
        topic, queue_id = QUEUES[one["queue"]]
        record = reference.Record(topic, one["body"], one["properties"].decode(), queue_id=queue_id)
        whole = reference.encode_record(record)
        expected = reference.decode_properties(record.properties)
        wanted = [expected.get(name.decode()) for name in names]
        spoiled = bytearray(whole)
        spoiled[at % len(spoiled)] = byte
        for raw in (whole, memoryview(bytearray(whole)), spoiled, whole[:at]):
            found = [outcome(twin, raw, tuple(names)) for twin in (reference, native)]
            assert found[0] == found[1]
        assert native.property_values(whole, tuple(names)) == wanted


def outcome(twin: Any, raw: Any, names: tuple[bytes, ...]) -> Any:
    try:
        return twin.property_values(raw, names)
    except Exception as error:
        return type(error).__name__, str(error)
