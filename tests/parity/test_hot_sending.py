"""The compiled send path does to memory what the plain one does, for every frame that it takes."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.hot import reference

native: Any = pytest.importorskip(
    "firearrow.hot.native", reason="no compiled twin here: there was no C compiler at install"
)

HOST = bytes([10, 0, 0, 1, 0, 0, 42, 159])
BORN = bytes([10, 0, 0, 9, 0, 0, 200, 1])
ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "c1"}
REPLY = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
FIELDS = {
    "a": "group",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x0100AA\x02TAGS\x01t\x02WAIT\x01true\x02",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}


class World:
    """A log with two queues of one topic, and a send path of one twin."""

    def __init__(self, twin: Any) -> None:
        self.twin = twin
        self.log = bytearray(4_000)
        self.writer = twin.LogWriter(HOST, 200)
        self.writer.open(memoryview(self.log), start=0, position=0, room=len(self.log))
        self.queues = [twin.QueueTail("orders", 0), twin.QueueTail("orders", 1)]
        self.gate = twin.TopicGate("orders", [*self.queues, None])
        self.path = twin.SendPath(self.writer, {b"orders": self.gate}, ADDED, REPLY)

    def serve(self, data: bytes) -> Any:
        return self.path.serve(data, 1 << 16, BORN, 1_700_000_000_123)

    def state(self) -> object:
        return (
            bytes(self.log),
            self.writer.position,
            [queue.next_offset for queue in self.queues],
            (self.gate.count, self.gate.times, self.gate.size),
        )


def frame(fields: dict[str, str], body: bytes = b"body", *, code: int = 310, **about: Any) -> bytes:
    return bytes(reference.encode_frame(reference.Command(code, fields, body, **about)))


def batch_part(body: bytes, own: bytes, flag: int, lie: tuple[int, int, int]) -> bytes:
    size = 22 + len(body) + len(own) + lie[0]
    head = struct.pack(">iiiii", size, 0, 0, flag, len(body) + lie[1])
    return head + body + struct.pack(">h", len(own) + lie[2]) + own


lies = st.sampled_from([(0, 0, 0)] * 9 + [(1, 0, 0), (0, 1, 0), (0, 0, -1), (-30, 0, 0)])
parts = st.builds(
    batch_part,
    st.sampled_from([b"one", b"x" * 20, b"x" * 61, b""]),
    st.sampled_from([b"", b"TAGS\x01a\x02", b"TAGS\x01a", b"a\x01\0\x02", b"\xff\x01\x01\x02"]),
    st.sampled_from([0, 5, -1]),
    lies,
)
batches = st.lists(parts, min_size=1, max_size=4).map(b"".join)

names = st.sampled_from(
    [
        "UNIQ_KEY",
        "TAGS",
        "KEYS",
        "WAIT",
        "DELAY",
        "TRAN_MSG",
        "CLUSTER",
        "POP_CK",
        "FA_PRODUCER",
        "x",
        "",
        "TIMER_DELAY_MS",
        "TIMER_DEL_UNIQKEY",
        "_SYS_MSG_PRIORITY_",
    ]
)
values = st.sampled_from(["true", "false", "0A1B", "k 1", "ü", 'q"', "\\", "a\x01b", ""])
properties = st.lists(st.tuples(names, values), max_size=5).flatmap(
    lambda pairs: st.sampled_from(["", "\x02", "UNIQ_KEY\x0107\x02"]).map(
        lambda end: "\x02".join(f"{name}\x01{value}" for name, value in pairs) + end
    )
)
odd_fields = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["orders", "other", "örders", ""]),
        "d": st.sampled_from(["4", "x", "99999999999"]),
        "e": st.sampled_from(["0", "1", "2", "3", "-1", "+1", "01", "1.0"]),
        "f": st.sampled_from(["0", "1", "4", "8", "769", "99999999999"]),
        "g": st.sampled_from(["0", "-5", "1700000000001", "1" * 19]),
        "h": st.sampled_from(["0", "7", "-7", "2147483648"]),
        "i": properties,
        "j": st.sampled_from(["0", "3", "-3", ""]),
        "m": st.sampled_from(["false", "true", "FALSE"]),
        "l": st.just("16"),
        "zz": st.just("odd"),
    },
)
singles = st.builds(
    lambda change, drop, body, code, flag, opaque: frame(
        {key: value for key, value in {**FIELDS, **change}.items() if key != drop},
        body,
        code=code,
        flag=flag,
        opaque=opaque,
    ),
    st.just({}) | odd_fields,
    st.sampled_from(["", "", "", "a", "b", "e", "g", "i", "j"]),
    st.sampled_from([b"body", b"x" * 200, b"x" * 201, b""]),
    st.sampled_from([310, 310, 310, 10, 320]),
    st.sampled_from([0, 0, 2, 1]),
    st.integers(-(1 << 31), (1 << 31) - 1),
)
many_at_once = st.builds(
    lambda change, body, code, flag, opaque: frame(
        {**FIELDS, "m": "true", **change}, body, code=code, flag=flag, opaque=opaque
    ),
    st.just({}) | odd_fields,
    batches | st.binary(max_size=60),
    st.sampled_from([320, 320, 320, 310]),
    st.sampled_from([0, 0, 2]),
    st.integers(0, 9),
)
LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "m": "batch",
}


def in_long_names(change: dict[str, str], more: dict[str, str], **about: Any) -> bytes:
    fields = {**FIELDS, **change}
    named = {LONG_NAMES.get(name, "bname"): value for name, value in fields.items()}
    return frame(named | more, code=10, **about)


def without_quotes(one: bytes) -> bytes:
    """As Node writes it: numbers and booleans are no strings."""
    size = int.from_bytes(one[4:8], "big")
    header = re.sub(rb':"(-?[0-9]+|true|false)"', rb":\1", one[8 : 8 + size])
    body = one[8 + size :]
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


first_form = st.builds(
    in_long_names,
    st.just({}) | odd_fields,
    st.sampled_from([{}, {}, {"b": "orders"}, {"e": "0"}]),
    flag=st.sampled_from([0, 2]),
    remark=st.sampled_from([None, "", "words"]),
)
plain_frames = singles | many_at_once | first_form
frames = plain_frames | plain_frames.map(without_quotes)


@given(st.lists(frames, max_size=8), st.data())
@settings(max_examples=400)
def test_what_the_compiled_path_takes_it_takes_like_the_plain_one(
    many: list[bytes], data: st.DataObject
) -> None:
    stream = bytearray(b"".join(many))
    for _ in range(data.draw(st.integers(0, 2)) if stream else 0):
        stream[data.draw(st.integers(0, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(stream)))
    read = bytes(stream[:cut])
    theirs = World(native)
    served = theirs.serve(read)
    ours = World(reference)
    expected = ours.serve(read[: served.used])
    assert served == expected
    assert ours.state() == theirs.state()


def test_the_compiled_path_takes_every_ordinary_message() -> None:
    """Else it could agree with the plain one by taking nothing."""
    variants = [
        {},
        {"e": "0", "f": "1", "h": "-7"},
        {"j": "3", "l": "16", "bname": "b"},
        {"i": "KEYS\x01k1 k2\x02UNIQ_KEY\x0107\x02"},
        {"i": "UNIQ_KEY\x0107\x02TAGS\x01t"},
    ]
    for flag in (0, 2):
        world = World(native)
        stream = b"".join(frame({**FIELDS, **change}, flag=flag) for change in variants)
        served = world.serve(stream + stream[:50])
        assert (served.used, served.messages) == (len(stream), len(variants))
        assert bool(served.replies) == (flag == 0)
        commands, used, bad = reference.decode_frames(served.replies, 1 << 16, 1 << 16)
        assert (used, bad) == (len(served.replies), "")
        assert len(commands) == (len(variants) if flag == 0 else 0)


def test_the_compiled_path_takes_an_ordinary_batch() -> None:
    for twin in (reference, native):
        world = World(twin)
        bodies = [b"a", b"b" * 30, b"c"]
        body = b"".join(batch_part(one, b"KEYS\x01k\x02", 3, (0, 0, 0)) for one in bodies)
        served = world.serve(frame({**FIELDS, "m": "true"}, body, code=320))
        assert served.messages == 3
        assert (world.gate.count, world.gate.times) == (3, 1)
        records = reference.scan_records(world.log, 0, world.writer.position).records
        assert [record.queue_offset for record in records] == [0, 1, 2]
        assert {record.properties.count("KEYS") for record in records} == {1}
        (reply,), _, _ = reference.decode_frames(served.replies, 1 << 16, 1 << 16)
        ids = reply.ext["msgId"].split(",")
        places = [reference.parse_offset_message_id(one)[2] for one in ids]
        assert places == [record.physical_offset for record in records]
        assert reply.ext["transactionId"] == "00AA"


def test_a_batch_that_does_not_fit_as_a_whole_is_left_to_the_general_handler() -> None:
    for twin in (reference, native):
        world = World(twin)
        world.writer.body_bytes_max = 4_000
        body = batch_part(b"x" * 40, b"", 0, (0, 0, 0)) * 30
        served = world.serve(frame({**FIELDS, "m": "true"}, body, code=320))
        assert served.used == 0
        assert world.writer.position == 0


def test_a_full_log_file_is_left_to_the_general_handler() -> None:
    for twin in (reference, native):
        world = World(twin)
        one = frame(dict(FIELDS))
        served = world.serve(one * 40)
        assert 0 < served.messages < 40
        assert served.used == served.messages * len(one)
        assert served.end_offset == world.writer.position
