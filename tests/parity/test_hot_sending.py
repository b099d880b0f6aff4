"""The compiled send path does to memory what the plain one does, for every frame that it takes."""

from __future__ import annotations

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
        self.writer = twin.LogWriter(HOST, 60)
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
            (self.gate.count, self.gate.size),
        )


def frame(fields: dict[str, str], body: bytes = b"body", *, code: int = 310, **about: Any) -> bytes:
    return bytes(reference.encode_frame(reference.Command(code, fields, body, **about)))


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
frames = st.builds(
    lambda change, drop, body, code, flag, opaque: frame(
        {key: value for key, value in {**FIELDS, **change}.items() if key != drop},
        body,
        code=code,
        flag=flag,
        opaque=opaque,
    ),
    st.just({}) | odd_fields,
    st.sampled_from(["", "", "", "a", "b", "e", "g", "i", "j"]),
    st.sampled_from([b"body", b"x" * 60, b"x" * 61, b""]),
    st.sampled_from([310, 310, 310, 10, 320]),
    st.sampled_from([0, 0, 2, 1]),
    st.integers(-(1 << 31), (1 << 31) - 1),
)


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


def test_a_full_log_file_is_left_to_the_general_handler() -> None:
    for twin in (reference, native):
        world = World(twin)
        one = frame(dict(FIELDS))
        served = world.serve(one * 40)
        assert 0 < served.messages < 40
        assert served.used == served.messages * len(one)
        assert served.end_offset == world.writer.position
