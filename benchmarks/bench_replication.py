"""What a slave costs: sends without one, beside one that follows, and waiting for one.

Every role is a process of its own, so CPU is the client's alone; rates and latencies are the
cluster's. The lag is how long after the last answer the slave has everything.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.harness import Measured, measure_part
from firearrow.aio import Producer
from firearrow.base.runtime import SystemClock
from firearrow.client.message import Message
from firearrow.net.client import RemotingClient
from firearrow.wire import bodies, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchmarks.harness import Stopwatch

BODY: Final = bytes(range(256)) * 4
SMALL: Final = 200
LARGE: Final = 40_000
ROUNDS: Final = 3
PATIENCE_S: Final = 60.0
ONE: Final = "one at a time"
MANY: Final = "64 in flight"


@dataclass(slots=True)
class Noted:
    """What the clock of one row says beside its rate."""

    latencies_ms: list[float] = field(default_factory=list)
    lag_ms: float = 0.0

    def remark(self) -> str:
        times = sorted(self.latencies_ms)
        p50, p99 = times[len(times) // 2], times[min(len(times) - 1, int(len(times) * 0.99))]
        return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, slave behind by {self.lag_ms:.0f} ms"


@contextmanager
def process(*words: str) -> Iterator[str]:
    """A role as a process; yields the line that says it is ready."""
    command = [sys.executable, "-m", "firearrow", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            ready = running.stdout.readline()
            assert ready, f"{words[0]} did not start"
            yield ready
        finally:
            running.terminate()


@contextmanager
def pair(folder: Path, role: str, *, with_slave: bool) -> Iterator[tuple[str, list[str]]]:
    """The name server's address, and those of a master and its slave."""
    common = ["-o", "flushDiskType=ASYNC_FLUSH"]
    with ExitStack() as stack:
        up = ["up", "--data", str(folder / "master"), "--nameserver-port", "0"]
        ready = stack.enter_context(
            process(*up, "--broker-port", "0", "-o", f"brokerRole={role}", *common)
        )
        names, master = re.findall(r"[\d.]+:\d+", ready)
        brokers = [master]
        if with_slave:
            slave = ["broker", "-n", names, "--port", "0", "--log-level", "WARNING"]
            slave += ["-o", "brokerId=1", "-o", "brokerRole=SLAVE"]
            slave += ["-o", f"storePathRootDir={folder / 'slave'}", *common]
            ready = stack.enter_context(process(*slave))
            brokers += re.findall(r"[\d.]+:\d+", ready)
        yield names, brokers


class Watch:
    """Where the logs of the brokers end, as they say themselves."""

    def __init__(self, brokers: list[str]) -> None:
        self._brokers = brokers
        self._client = RemotingClient(SystemClock())

    async def _status(self, address: str) -> bodies.HARuntimeInfo:
        asking = request(RequestCode.GET_BROKER_HA_STATUS)
        reply = await self._client.invoke(address, asking, 5_000)
        return java_json.decode(reply.body, bodies.HARuntimeInfo)

    async def until_equal(self) -> float:
        """How long it takes until the slave has everything, in ms."""
        started = time.perf_counter()
        while len(self._brokers) > 1:
            status = await self._status(self._brokers[0])
            slaves = status.ha_connection_info
            if slaves and slaves[0].diff == 0:
                break
            assert time.perf_counter() - started < PATIENCE_S, "the slave does not follow"
            await asyncio.sleep(0.001)
        return (time.perf_counter() - started) * 1e3

    async def close(self) -> None:
        await self._client.close()


async def send_all(
    names: str, brokers: list[str], count: int, width: int, watch: Stopwatch
) -> tuple[int, Noted]:
    noted, numbers, stored = Noted(), iter(range(count)), 0
    looking = Watch(brokers)
    await looking.until_equal()

    async def send_some(producer: Producer) -> None:
        nonlocal stored
        for _ in numbers:
            started = time.perf_counter()
            receipt = await producer.send(Message("bench", BODY))
            noted.latencies_ms.append((time.perf_counter() - started) * 1e3)
            stored += receipt.ok

    async with Producer("bench", nameservers=names) as producer:
        await producer.send(Message("bench", BODY))  # the topic, and connections
        with watch:
            await asyncio.gather(*(send_some(producer) for _ in range(width)))
        noted.lag_ms = await looking.until_equal()
    await looking.close()
    return stored, noted


def run() -> Iterator[Measured]:
    rows = [
        ("no slave", "ASYNC_MASTER", False),
        ("a slave follows", "ASYNC_MASTER", True),
        ("a slave is waited for", "SYNC_MASTER", True),
    ]
    for what, role, with_slave in rows:
        with (
            tempfile.TemporaryDirectory() as folder,
            pair(Path(folder), role, with_slave=with_slave) as (names, brokers),
        ):
            for width, how in ((1, ONE), (64, MANY)):
                noted = Noted()

                def work(count: int, watch: Stopwatch, width: int = width) -> Iterable[bytes]:
                    nonlocal noted
                    stored, noted = asyncio.run(send_all(names, brokers, count, width, watch))
                    return [str(stored).encode()]

                name = f"send 1 KiB, {how}, {what}"
                large = LARGE if width > 1 else LARGE // 10
                measured = measure_part(
                    name, "messages", work, small=SMALL, large=large, rounds=ROUNDS
                )
                yield replace(measured, remark=noted.remark())


if __name__ == "__main__":
    for result in run():
        print(result, flush=True)
