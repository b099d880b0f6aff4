"""The compiled pull path answers like the plain one, for every frame that it takes."""

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
FILE_BYTES = 4096
PER_FILE = 16  # entries of a queue's file
MEMORY = 3 * FILE_BYTES
VERIFIED_FROM = FILE_BYTES  # records of the first file are checked again
CODES = frozenset({reference.java_hash("red")})
REPLY = {
    "suggestWhichBrokerId": "0",
    "nextBeginOffset": "0",
    "minOffset": "0",
    "maxOffset": "0",
    "topicSysFlag": "0",
    "groupSysFlag": "7",
}
FIELDS = {
    "consumerGroup": "group",
    "topic": "orders",
    "queueId": "0",
    "queueOffset": "3",
    "maxMsgNums": "4",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subVersion": "5",
    "expressionType": "TAG",
}


class World:
    """A log of two files with two queues of one topic; the older entries are in a queue's files."""

    def __init__(self, twin: Any, damage: tuple[int, int] | None = None) -> None:
        self.twin = twin
        logs = [bytearray(FILE_BYTES) for _ in range(2)]
        self.writer = twin.LogWriter(HOST, 200)
        self.queues = [twin.QueueTail("orders", number) for number in range(2)]
        for number, log in enumerate(logs):
            start = number * FILE_BYTES
            self.writer.open(memoryview(log), start=start, position=0, room=FILE_BYTES)
            turn = 0
            while self._put(turn):
                turn += 1
        self.all_entries = [bytes(queue.tail) for queue in self.queues]
        for queue in self.queues:  # all but the last five are only in files
            gone = queue.max_offset - 5
            queue.tail_first = gone
            del queue.tail[: gone * 20]
            queue.min_offset = 1
        if damage is not None:
            at, bits = damage
            logs[at // FILE_BYTES][at % FILE_BYTES] ^= bits
        self.looks = 0
        self.files = {n * FILE_BYTES: memoryview(log) for n, log in enumerate(logs)}
        self.gates = {
            twin.pull_key(11, "group", "orders", ""): self.gate(None, 5),
            twin.pull_key(361, "group", "orders", ""): self.gate(None, 5),
            twin.pull_key(11, "reds", "orders", ""): self.gate(CODES, 5),
            twin.pull_key(11, "group", "orders", twin.own_filter("red", "TAG")): self.gate(
                CODES, 1 << 62
            ),
        }
        self.path = twin.PullPath(
            self.writer,
            self.gates,
            self.files,
            file_bytes=FILE_BYTES,
            entries_per_file=PER_FILE,
            memory_bytes=MEMORY,
            verified_from=VERIFIED_FROM,
            look_ahead=self.look_ahead,
        )

    def _put(self, turn: int) -> bool:
        queue = self.queues[turn % 3 % 2]  # so that some records of a queue touch
        tag = ("red", "blue", "")[turn % 4 % 3]
        text = f"TAGS\x01{tag}\x02" if tag else ""
        message = self.twin.StoreMessage("orders", queue.queue_id, b"b" * 40, text.encode())
        if self.writer.append(message, queue, 7) <= 0:
            return False
        queue.add_entry(
            message.physical_offset, message.size, reference.java_hash(tag) if tag else 0
        )
        return True

    def gate(self, codes: Any, sub_version: int) -> Any:
        return self.twin.PullGate(
            "orders",
            "group",
            [*self.queues, None],
            codes=codes,
            sub_version=sub_version,
            most=6,
            bytes_max=600,
            scan=9,
            committed={},
            pulled={},
            reply=REPLY,
        )

    def look_ahead(self, queue: Any, offset: int) -> None:
        self.looks += 1
        stop = min(offset + 12, offset + PER_FILE - offset % PER_FILE)
        queue.window = self.all_entries[queue.queue_id][offset * 20 : stop * 20]
        queue.window_first = offset

    def serve(self, data: bytes, enough: int = 1 << 20) -> Any:
        return self.path.serve(data, 1 << 16, enough)

    def state(self) -> object:
        return [
            (g.committed, g.pulled, g.pulls, g.messages, g.size) for g in self.gates.values()
        ], self.looks


def frame(fields: dict[str, str], body: bytes = b"", *, code: int = 11, **about: Any) -> bytes:
    return bytes(reference.encode_frame(reference.Command(code, fields, body, **about)))


odd_fields = st.fixed_dictionaries(
    {},
    optional={
        "consumerGroup": st.sampled_from(["group", "reds", "other", "grüppe", "a\\b"]),
        "topic": st.sampled_from(["orders", "other", ""]),
        "queueId": st.sampled_from(["0", "1", "2", "3", "-1", "+1", "01", "x", "99999999999"]),
        "queueOffset": st.integers(-2, 40).map(str) | st.sampled_from(["", "1e3", "9" * 19]),
        "maxMsgNums": st.sampled_from(["1", "0", "-3", "4", "5", "64", "2147483648"]),
        "sysFlag": st.sampled_from(
            ["0", "1", "2", "3", "4", "6", "8", "16", "32", "-1", "4294967299"]
        ),
        "commitOffset": st.sampled_from(["0", "3", "-1", "x"]),
        "suspendTimeoutMillis": st.sampled_from(["0", "y"]),
        "subVersion": st.sampled_from(["0", "5", "6", ""]),
        "subscription": st.sampled_from(["red", "*", "", "red || blue"]),
        "expressionType": st.sampled_from(["TAG", "SQL92", ""]),
        "maxMsgBytes": st.just("262144"),
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
    st.sampled_from(["", "", "", *FIELDS]),
    st.sampled_from([b"", b"", b"", b"x"]),
    st.sampled_from([11, 11, 11, 361, 10]),
    st.sampled_from([0, 0, 0, 2, 1]),
    st.integers(-(1 << 31), (1 << 31) - 1),
)


def without_quotes(one: bytes) -> bytes:
    """As Node writes it: numbers are no strings."""
    size = int.from_bytes(one[4:8], "big")
    header = re.sub(rb':"(-?[0-9]+)"', rb":\1", one[8 : 8 + size])
    body = one[8 + size :]
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


@given(st.lists(frames | frames.map(without_quotes), max_size=6), st.data())
@settings(max_examples=400)
def test_what_the_compiled_path_answers_it_answers_like_the_plain_one(
    many: list[bytes], data: st.DataObject
) -> None:
    stream = bytearray(b"".join(many))
    for _ in range(data.draw(st.integers(0, 1)) if stream else 0):
        stream[data.draw(st.integers(0, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    read = bytes(stream[: data.draw(st.integers(0, len(stream)))])
    damage = data.draw(
        st.none() | st.tuples(st.integers(0, 2 * FILE_BYTES - 1), st.integers(1, 255))
    )
    theirs = World(native, damage)
    served = theirs.serve(read)
    ours = World(reference, damage)
    expected = ours.serve(read[: served.used])
    assert served == expected
    if served.used == len(read):  # a frame that is left may have been looked at
        assert ours.state() == theirs.state()
    else:
        assert ours.state()[0] == theirs.state()[0]  # type: ignore[index]


@pytest.mark.parametrize("code", [11, 361])
def test_the_compiled_path_takes_every_ordinary_pull(code: int) -> None:
    """Else it could agree with the plain one by taking nothing."""
    world = World(native)
    end = world.queues[0].max_offset
    fields = [{**FIELDS, "queueOffset": str(n), "maxMsgBytes": "9"} for n in range(1, end)]
    # A pull whose answer would cross the end of a file of the log is for the general handler.
    alone = [frame(f, code=code, opaque=n) for n, f in enumerate(fields)]
    taken = [one for one in alone if World(native).serve(one).pulls]
    assert len(taken) >= len(alone) - 3
    served = world.serve(b"".join(taken))
    assert (served.pulls, served.used) == (len(taken), sum(map(len, taken)))
    for reply in served.replies:
        commands, used, bad = reference.decode_frames(reply, 1 << 20, 1 << 16)
        assert (used, bad, len(commands)) == (len(reply), "", 1)
        following = int(commands[0].ext["nextBeginOffset"])
        records = reference.scan_records(commands[0].body, 0, len(commands[0].body)).records
        assert records[-1].queue_offset == following - 1
        assert {record.queue_id for record in records} == {0}


def test_a_filter_leaves_out_what_it_does_not_want() -> None:
    for twin in (reference, native):
        world = World(twin)
        asked = {**FIELDS, "sysFlag": "5", "subscription": "red", "commitOffset": "2"}
        served = world.serve(frame(asked))
        assert (served.pulls, served.commits) == (1, 1)
        (command,), _, _ = reference.decode_frames(served.replies[0], 1 << 20, 1 << 16)
        records = reference.scan_records(command.body, 0, len(command.body)).records
        assert records
        assert {record.properties for record in records} == {"TAGS\x01red\x02"}
        gate = world.gates[twin.pull_key(11, "group", "orders", twin.own_filter("red", "TAG"))]
        assert gate.committed == {0: 2}
        assert gate.pulled == {0: int(command.ext["nextBeginOffset"])}


def test_a_read_full_of_pulls_is_answered_up_to_a_limit() -> None:
    for twin in (reference, native):
        world = World(twin)
        one = frame(FIELDS)
        served = world.serve(one * 10, 2000)
        assert 1 < served.pulls < 10
        assert served.used == served.pulls * len(one)


def test_what_is_cold_or_not_mapped_is_left_to_the_general_handler() -> None:
    for twin in (reference, native):
        for memory_bytes, mapped, taken in ((MEMORY, True, 1), (10, True, 0), (MEMORY, False, 0)):
            world = World(twin)
            path = twin.PullPath(
                world.writer,
                world.gates,
                world.files if mapped else {},
                file_bytes=FILE_BYTES,
                entries_per_file=PER_FILE,
                memory_bytes=memory_bytes,
                verified_from=0,
                look_ahead=world.look_ahead,
            )
            assert path.serve(frame(FIELDS), 1 << 16, 1 << 20).pulls == taken


def test_what_is_far_behind_but_warm_is_taken_with_the_same_answer() -> None:
    asked: list[list[tuple[int, int]]] = []
    answers = []
    for twin in (reference, native):
        for warm in (True, False):
            world = World(twin)
            ranges: list[tuple[int, int]] = []

            def is_warm(
                start: int,
                stop: int,
                ranges: list[tuple[int, int]] = ranges,
                warm: bool = warm,
            ) -> bool:
                ranges.append((start, stop))
                return warm

            path = twin.PullPath(
                world.writer,
                world.gates,
                world.files,
                file_bytes=FILE_BYTES,
                entries_per_file=PER_FILE,
                memory_bytes=10,
                verified_from=0,
                look_ahead=world.look_ahead,
                is_warm=is_warm,
            )
            served = path.serve(frame(FIELDS), 1 << 16, 1 << 20)
            assert served.pulls == int(warm)
            asked.append(ranges)
            answers.append(served.replies)
    assert answers[0] == answers[2]
    assert answers[0] == [World(native).serve(frame(FIELDS)).replies[0]]
    assert asked[0] == asked[1] == asked[2] == asked[3]
    assert len(asked[0]) == 1
