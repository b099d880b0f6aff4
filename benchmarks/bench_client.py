"""Our client on our broker, which runs in a process of its own: CPU is the client's alone.

`make bench-clients` has the same works beside the Java client.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from benchmarks.client_load import BATCH, Load, Tally, run_async
from benchmarks.harness import Measured, measure_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from benchmarks.harness import Stopwatch

BODY: Final = bytes(range(256)) * 4
SMALL: Final = 320
LARGE: Final = 64_000
ROUNDS: Final = 3


@contextmanager
def broker() -> Iterator[str]:
    """The address of a name server; the broker behind it does not wait for its disk."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "firearrow", "up", "--data", folder]
        command += ["--nameserver-port", "0", "--broker-port", "0"]
        command += ["-o", "flushDiskType=ASYNC_FLUSH"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                ready = re.search(r"name server ([\w.:]+)", process.stdout.readline())
                assert ready is not None, "the broker did not start"
                yield ready[1]
            finally:
                process.terminate()


def sends(load: Load, width: int, *, blocking: bool = False, batch: bool = False) -> Work:
    def work(count: int, watch: Stopwatch) -> Iterable[bytes]:
        tally = Tally(count=count)
        with watch:
            if blocking:
                load.send_blocking(tally, width, BODY, batch=batch)
            else:
                run_async(load.send_aio(tally, width, BODY, batch=batch))
        return [str(tally.messages).encode()]

    return work


def consumes(consume: Callable[[Tally], None]) -> Work:
    """Consume what the sends before it have left; more than asked for may be pulled already."""

    def work(count: int, watch: Stopwatch) -> Iterable[bytes]:
        tally = Tally(count=count)
        with watch:
            consume(tally)
        return [str(tally.messages >= count).encode()]

    return work


def run() -> Iterator[Measured]:
    with broker() as nameservers:
        load = Load(nameservers, "bench")
        rows: list[tuple[str, Work]] = [
            ("send 1 KiB, one at a time, asyncio", sends(load, 1)),
            ("send 1 KiB, one at a time, blocking", sends(load, 1, blocking=True)),
            ("send 1 KiB, 64 threads", sends(load, 64, blocking=True)),
            ("send 1 KiB, 512 in flight, asyncio", sends(load, 512)),
            (f"send 1 KiB, batches of {BATCH}", sends(load, 4, batch=True)),
            ("consume 1 KiB, function", consumes(lambda t: run_async(load.consume_push(t, 1)))),
            ("consume 1 KiB, coroutine", consumes(lambda t: run_async(load.consume_async(t)))),
            ("consume 1 KiB, poll", consumes(lambda t: run_async(load.consume_pull_aio(t)))),
        ]
        for name, work in rows:
            yield measure_part(name, "messages", work, small=SMALL, large=LARGE, rounds=ROUNDS)


if TYPE_CHECKING:
    Work = Callable[[int, Stopwatch], Iterable[bytes]]
