"""The express lane of sending does what the general handler does, byte for byte."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker_requests import batch_body
from tests.support import PATIENCE_S, running_broker

from firearrow import hot
from firearrow.hot import Command, decode_frames, encode_frame
from firearrow.model.errors import ResponseCode
from firearrow.testing.faults import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from firearrow.store.disk import MappedFile
    from firearrow.store.store import MessageStore
    from firearrow.store.syncer import Done

pytestmark = pytest.mark.skipif(hot.KIND != "native", reason="the express lane is compiled code")

FIELDS = {
    "a": "group",
    "b": "orders",
    "c": "TBW102",
    "d": "2",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x0100AA\x02TAGS\x01t\x02KEYS\x01k1 k2\x02WAIT\x01true\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}


GENERAL: dict[str, Any] = {"i": "TAGS\x01x\x02"}  # without a unique key only the general handler


def send(body: bytes = b"body", *, opaque: int = 1, flag: int = 0, **fields: Any) -> bytes:
    command = Command(310, {**FIELDS, **fields}, body, opaque=opaque, flag=flag, language=0)
    return encode_frame(command)


def send_many(bodies: Sequence[bytes], *, opaque: int = 1, **fields: Any) -> bytes:
    body = batch_body((one, {"UNIQ_KEY": f"{n}", "TAGS": "b"}) for n, one in enumerate(bodies))
    command = Command(320, {**FIELDS, "m": "true", **fields}, body, opaque=opaque, language=0)
    return encode_frame(command)


async def exchange(address: str, data: bytes, answers: int) -> list[Command]:
    """Write frames in one go and read so many answers."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    received = b""
    commands: list[Command] = []
    while len(commands) < answers:
        chunk = await reader.read(1 << 16)
        assert chunk, "the broker hung up"
        received += chunk
        commands, _, bad = decode_frames(received, 1 << 24, 1 << 20)
        assert not bad
    writer.close()
    return commands


def facts(commands: list[Command]) -> list[Any]:
    return sorted((c.opaque, c.code, c.flag, c.remark, sorted(c.ext.items())) for c in commands)


async def run(folder: Path, frames: list[bytes], answers: int, *, express: bool) -> tuple[Any, Any]:
    """The answers, and the log without addresses that differ from run to run."""
    clock = ManualClock()
    settings_of_both: dict[str, Any] = {"flush_disk_type": "async_flush"}
    async with running_broker(folder, clock, **settings_of_both) as served:
        if not express:
            lane = served.broker.express
            assert lane is not None
            served.broker.state.statistics.before_reading.clear()
            lane.open_gate = lambda *_: None  # type: ignore[method-assign]
        # The first opens the gate, the rest comes in one read.
        first = await exchange(served.broker.address, send(opaque=-1), 1)
        commands = await exchange(served.broker.address, b"".join(frames), answers)
        records = [
            (r.topic, r.queue_id, r.queue_offset, r.physical_offset, r.properties, r.sys_flag)
            for r in served.broker.state.store.scan(0)
        ]
        hide = served.broker.address.rpartition(":")[2]
        port = f"{int(hide):08X}"
        answered = [
            (o, code, flag, remark, [(k, v.replace(port, "PORT")) for k, v in ext])
            for o, code, flag, remark, ext in facts(first + commands)
        ]
        return answered, records


variants = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["orders", "orders", "other", "%RETRY%g"]),
        "e": st.sampled_from(["0", "1", "7"]),
        "f": st.sampled_from(["0", "1", "4", "257"]),
        "h": st.sampled_from(["0", "-9"]),
        "i": st.sampled_from(
            [
                "UNIQ_KEY\x0107\x02",
                "UNIQ_KEY\x0107\x02WAIT\x01false\x02",
                "TAGS\x01x\x02",
                "UNIQ_KEY\x0107\x02DELAY\x012\x02",
                "UNIQ_KEY\x0107\x02UNIQ_KEY\x0108\x02",
                "UNIQ_KEY\x0107\x02city\x01Zürich\x02",
                "UNIQ_KEY\x0107\x02CLUSTER\x01mine\x02",
                "UNIQ_KEY\x0107\x02empty\x01\x02",
                "",
            ]
        ),
        "j": st.sampled_from(["0", "2"]),
    },
)


sent_bodies = st.sampled_from([b"body", b"x" * 500, b"", [b"one"], [b"x" * 100, b"y"], [b"", b"z"]])


@given(st.lists(st.tuples(variants, sent_bodies), max_size=8))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_with_and_without_the_express_lane_the_same_is_stored_and_answered(
    tmp_path_factory: pytest.TempPathFactory,
    many: list[tuple[dict[str, Any], bytes | list[bytes]]],
) -> None:
    frames = [
        send(body, opaque=n, **fields)
        if isinstance(body, bytes)
        else send_many(body, opaque=n, **fields)
        for n, (fields, body) in enumerate(many)
    ]
    folder = tmp_path_factory.mktemp("express")
    both = [
        asyncio.run(run(folder / str(express), frames, len(frames), express=express))
        for express in (True, False)
    ]
    assert both[0] == both[1]


async def test_a_read_full_of_messages_is_served_without_the_general_handler(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, flush_disk_type="async_flush") as served:
        await exchange(served.broker.address, send(), 1)
        general = served.broker.state.statistics.puts.count
        assert general == 1
        frames = b"".join(send(opaque=n) for n in range(50))
        answers = await exchange(served.broker.address, send() + frames, 51)
        assert {answer.code for answer in answers} == {0}
        assert sorted(int(a.ext["queueOffset"]) for a in answers) == list(range(1, 52))
        lane = served.broker.express
        assert lane is not None
        assert lane.passed >= 50
        before = lane.passed
        (answer,) = await exchange(served.broker.address, send_many([b"a", b"b", b"c"]), 1)
        assert (answer.code, answer.ext["msgId"].count(",")) == (0, 2)
        assert lane.passed == before + 3
        counter = served.broker.state.statistics.find("TOPIC_PUT_NUMS", "orders")
        assert counter is not None
        assert (counter.count, counter.times) == (55, 53)


async def test_one_way_messages_are_stored_and_not_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await exchange(served.broker.address, send(), 1)
        frames = b"".join(send(opaque=n, flag=2) for n in range(10)) + send(opaque=99)
        answers = await exchange(served.broker.address, frames, 1)
        assert [answer.opaque for answer in answers] == [99]
        assert answers[0].ext["queueOffset"] == "11"


async def test_a_changed_topic_closes_the_gate(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await exchange(served.broker.address, send(), 1)
        served.broker.state.topics.delete("orders")
        (answer,) = await exchange(served.broker.address, send(b"again", c="NOWHERE"), 1)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def appended(store: MessageStore, *, messages: int) -> int:
    """Wait until the log holds so many messages; returns where it ends."""
    async with asyncio.timeout(PATIENCE_S):
        while len(list(store.scan(0))) < messages:  # noqa: ASYNC110 - a connection appends
            await asyncio.sleep(0)
    return store.statistics().end_offset


class StuckSyncer:
    """A disk that takes its time."""

    def __init__(self) -> None:
        self.begun: list[Done] = []

    def begin(self, files: Sequence[MappedFile], done: Done) -> None:  # noqa: ARG002
        self.begun.append(done)

    def close(self) -> None:
        while self.begun:
            self.begun.pop()(None)


async def test_a_disk_that_is_late_is_said_and_the_message_counts_as_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await exchange(served.broker.address, send(), 1)  # opens the gate
        stuck = StuckSyncer()
        flusher = served.broker.state.store._flusher  # noqa: SLF001 - a disk cannot be stuck else
        monkeypatch.setattr(flusher, "_syncer", stuck)
        general = asyncio.ensure_future(exchange(served.broker.address, send(**GENERAL), 1))
        express = asyncio.ensure_future(exchange(served.broker.address, send() + send(), 2))
        state = served.broker.state
        end = await appended(state.store, messages=4)
        assert end > state.store.statistics().flushed_offset
        await clock.advance(6_000)
        answers = [*await general, *await express]
        assert {answer.code for answer in answers} == {ResponseCode.FLUSH_DISK_TIMEOUT}
        assert all("queueOffset" in answer.ext for answer in answers)
        monkeypatch.undo()
        stuck.close()


@pytest.mark.parametrize("through", ["general", "express"])
async def test_whoever_comes_while_the_disk_is_stuck_is_sent_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: str
) -> None:
    clock = ManualClock()
    settings = {"os_page_cache_busy_time_out_mills": 1_000}
    async with running_broker(tmp_path, clock, **settings) as served:
        await exchange(served.broker.address, send(), 1)
        stuck = StuckSyncer()
        store = served.broker.state.store
        flusher = store._flusher  # noqa: SLF001 - a disk cannot be stuck else
        monkeypatch.setattr(flusher, "_syncer", stuck)
        waiting = asyncio.ensure_future(exchange(served.broker.address, send(), 1))
        end = await appended(store, messages=2)
        fields: dict[str, Any] = GENERAL if through == "general" else {}
        await clock.advance(999)
        await clock.advance(1)
        (refused,) = await exchange(served.broker.address, send(**fields), 1)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert (refused.remark or "").startswith("[PC_SYNCHRONIZED]")
        assert store.statistics().end_offset == end
        monkeypatch.undo()
        stuck.close()
        assert [answer.code for answer in await waiting] == [0]
        (answer,) = await exchange(served.broker.address, send(**fields), 1)
        assert answer.code == 0


@pytest.mark.parametrize("through", ["general", "express"])
async def test_no_more_sends_wait_for_the_disk_than_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: str
) -> None:
    limits: dict[str, Any] = {"send_thread_pool_queue_capacity": 3}
    async with running_broker(tmp_path, ManualClock(), **limits) as served:
        await exchange(served.broker.address, send(), 1)
        stuck = StuckSyncer()
        state = served.broker.state
        monkeypatch.setattr(state.store._flusher, "_syncer", stuck)  # noqa: SLF001
        fields: dict[str, Any] = GENERAL if through == "general" else {}
        frames = b"".join(send(opaque=n, **fields) for n in range(3))
        waiting = asyncio.ensure_future(exchange(served.broker.address, frames, 3))
        await appended(state.store, messages=4)
        assert state.lanes.send.in_progress == 3
        (refused,) = await exchange(served.broker.address, send(**fields), 1)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert (refused.remark or "").startswith("[OVERLOAD]")
        monkeypatch.undo()
        stuck.close()
        assert [answer.code for answer in await waiting] == [0, 0, 0]
        assert state.lanes.send.in_progress == 0
