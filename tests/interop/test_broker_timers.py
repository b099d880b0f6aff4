"""Delivery times with real peers: the Java client on our broker, and directories with timers that
wait, which Apache's broker and ours hand to each other.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.broker_requests import properties_of, pull, records, send
from tests.support import crash, until

from firearrow.base.runtime import SystemClock
from firearrow.broker.broker import Broker as OurBroker
from firearrow.broker.config import BrokerConfig
from firearrow.model.message import TIMER_DELIVER_MS
from firearrow.net.client import RemotingClient
from firearrow.offline.check import check
from firearrow.offline.directory import StoreDirectory
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

from .apache import java_command, start_broker, start_name_server
from .firearrow import FireArrowCluster
from .stores import SMALL, stop_cleanly

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.hot import Record
    from firearrow.store.timer_files import TimerFiles

    from .apache import Broker
    from .processes import Bench

Unique = Callable[[str], str]

ROUND_TIMEOUT_S: Final = 60.0
PATIENCE_S: Final = 60.0
TOPIC: Final = "orders"
TIMERS: Final = 6
FAR_MS: Final = 200_000_000  # longer than the window of the wheel: it goes round again
ASK_MS: Final = 10_000


# --- the Java client --------------------------------------------------------------------------


def test_java_messages_come_at_their_time_and_recalled_ones_never(
    bench: Bench, unique: Unique
) -> None:
    ours = FireArrowCluster(bench, {"recallMessageEnable": "true"})
    folder = bench.new_folder("java-timers")
    command = java_command(
        "firearrow.interop.Timers",
        work_dir=folder,
        arguments=[ours.nameserver.address, unique("timers")],
    )
    process = bench.start("java-timers", command, work_dir=folder)
    assert process.wait_for_exit(timeout_s=ROUND_TIMEOUT_S) == 0, process.tail()
    (line,) = [line for line in process.output().splitlines() if line.startswith('{"plain')]
    report: dict[str, Any] = json.loads(line)

    waited = report["waited"]
    assert set(waited) == {"at-once", "level", "ms", "sec", "at"}
    assert waited["level"] >= 1_000
    assert waited["ms"] >= 1_234
    assert waited["sec"] >= 2_000
    assert waited["at"] >= 2_500
    assert report["recallAnswer"] == report["recalledId"]
    assert report["plainHandle"] is None
    assert report["levelHandle"] is None
    assert all(report[f"{name}Handle"] for name in ("ms", "sec", "at"))
    assert "handle" in report["recallRefused"]


# --- directories ------------------------------------------------------------------------------


class Keeper:
    """Sends timers to whichever broker has a directory, and looks what came of them."""

    def __init__(self, name: str, root: Path, port: int) -> None:
        self.name = name
        self.root = root
        self.port = port
        self.due: dict[str, int] = {}
        self.recalled: set[str] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def fill(self, client: RemotingClient, act: str, after_ms: int) -> None:
        """Some timers that are due soon, one of them taken back, and one for the day after next."""
        now_ms = time.time_ns() // 1_000_000
        for number in range(TIMERS + 2):
            body = f"{act}-{number}"
            due_ms = now_ms + (after_ms + 130 * number if number <= TIMERS else FAR_MS)
            reply = await client.invoke(
                self.address,
                send(
                    body.encode(),
                    topic=TOPIC,
                    properties={TIMER_DELIVER_MS: str(due_ms), "UNIQ_KEY": f"{self.name}-{body}"},
                ),
                ASK_MS,
            )
            assert reply.code == 0, reply.remark
            if number == 2:
                await self._recall(client, reply.ext["recallHandle"])
                self.recalled.add(body)
            elif number <= TIMERS:
                self.due[body] = due_ms

    async def _recall(self, client: RemotingClient, handle: str) -> None:
        header = headers.RecallMessageRequest(
            producer_group="shop", topic=TOPIC, recall_handle=handle
        )
        reply = await client.invoke(
            self.address, request(RequestCode.RECALL_MESSAGE, header), ASK_MS
        )
        assert reply.code == 0, reply.remark

    async def wait(self, client: RemotingClient, act: str) -> Counter[str]:
        """Until all timers of an act have come, and a little longer; none is early."""
        wanted = {body for body in self.due if body.startswith(f"{act}-")}
        deadline = time.monotonic() + PATIENCE_S
        while not wanted <= set(self._bodies(await self._read(client))):
            assert time.monotonic() < deadline, f"{self.name}: {wanted} did not come"
            await asyncio.sleep(0.1)
        await asyncio.sleep(2.5)
        found = await self._read(client)
        for record in found:
            body = record.body.decode()
            assert body not in self.recalled
            assert record.store_timestamp >= self.due[body], body
            assert properties_of(record)["REAL_TOPIC"] == TOPIC
        return self._bodies(found)

    def _bodies(self, found: list[Record]) -> Counter[str]:
        return Counter(record.body.decode() for record in found)

    async def _read(self, client: RemotingClient) -> list[Record]:
        reply = await client.invoke(self.address, pull(0, topic=TOPIC, count=32), ASK_MS)
        return records(reply) if reply.code == 0 else []


def config_for(keeper: Keeper, nameserver: str) -> BrokerConfig:
    return BrokerConfig(
        broker_name=keeper.name,
        namesrv_addr=nameserver,
        listen_port=keeper.port,
        store_path_root_dir=keeper.root,
        mapped_file_size_commit_log=SMALL["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=SMALL["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=SMALL["maxHashSlotNum"],
        max_index_num=SMALL["maxIndexNum"],
        recall_message_enable=True,
    )


def start_apache_on(bench: Bench, keeper: Keeper, nameserver: Any) -> Broker:
    return start_broker(
        bench,
        nameserver,
        name=keeper.name,
        cluster="DefaultCluster",
        port=keeper.port,
        extra={
            "storePathRootDir": keeper.root,
            "storePathCommitLog": keeper.root / "commitlog",
            **SMALL,
            "recallMessageEnable": "true",
        },
    )


def has_saved(files: TimerFiles) -> bool:
    return files.checkpoint.queue_offset >= TIMERS


async def begin_with_ours(keepers: list[Keeper], nameserver: str) -> None:
    """Our broker fills both directories; the second one is left as a crash would leave it."""
    client = RemotingClient(SystemClock())
    for keeper in keepers:
        alive = keeper.root.parent / "alive"
        goal, keeper.root = keeper.root, alive
        broker = OurBroker(config_for(keeper, nameserver))
        await broker.start()
        await keeper.fill(client, "ours", 15_000)
        if keeper.name == "killed":
            files = broker.state.timers.files
            await until(partial(has_saved, files), "a checkpoint")
            await asyncio.to_thread(crash, alive, goal)
        await broker.stop()
        if keeper.name == "clean":
            alive.rename(goal)
        keeper.root = goal
    await client.close()


def test_timers_wait_on_in_a_directory_that_apache_takes_over_and_gives_back(
    bench: Bench,
) -> None:
    nameserver = start_name_server(bench)
    keepers = [
        Keeper(name, bench.new_folder(name) / "store", bench.reserve_ports())
        for name in ("clean", "killed")
    ]
    asyncio.run(begin_with_ours(keepers, nameserver.address))
    brokers = [start_apache_on(bench, keeper, nameserver) for keeper in keepers]
    for broker in brokers:
        broker.wait_until_started()

    async def with_apache() -> None:
        client = RemotingClient(SystemClock())
        for keeper in keepers:
            came = await keeper.wait(client, "ours")
            assert set(came.values()) == {1}, came
            await keeper.fill(client, "apache", 12_000)
        await asyncio.sleep(2.5)  # it writes its checkpoint every second
        await client.close()

    asyncio.run(with_apache())
    brokers[1].process.kill()
    stop_cleanly(brokers[0])

    async def with_ours() -> None:
        client = RemotingClient(SystemClock())
        for keeper in keepers:
            broker = OurBroker(config_for(keeper, nameserver.address))
            await broker.start()
            came = await keeper.wait(client, "apache")
            assert set(came.values()) == {1}, came
            assert set(came) == set(keeper.due)
            await broker.stop()
            report = check(StoreDirectory(keeper.root), now_ms=time.time_ns() // 1_000_000)
            assert not [finding for finding in report.findings if finding.code == "O6"]
        await client.close()

    asyncio.run(with_ours())
