"""Every example program does what it says, on a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.testing import LocalCluster

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
# What each program prints at last, run alone and without arguments.
LAST_LINES = {
    "async_consumer": "customer ",
    "demo": "Done",
    "ordered": "C: created → paid → shipped",
    "producer": "100 more are stored",
    "transaction": "order 2: rollback",
}
# The whole demo is run by tests/interop: Java takes its time.
ARGUMENTS = {"demo": ["--without-spark"]}


@pytest.fixture
def environment(rocketmq: LocalCluster) -> dict[str, str]:
    return os.environ | {"NAMESRV_ADDR": rocketmq.nameservers, "PYTHONUTF8": "1"}


def run(name: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *ARGUMENTS.get(name, [])],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=50,
        check=False,
    )


def test_every_example_is_run_here() -> None:
    # The one by hand is run by its guide's test.
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {*LAST_LINES, "consumer", "transactions_by_hand"}


@pytest.mark.parametrize("name", LAST_LINES)
def test_example_runs_to_its_end(name: str, environment: dict[str, str]) -> None:
    ended = run(name, environment)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout.splitlines()[-1].startswith(LAST_LINES[name])


@pytest.fixture
def consumer(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(EXAMPLES / "consumer.py")]
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        yield process
        process.kill()


def test_the_consumer_bills_every_order_and_stops_when_told(
    rocketmq: LocalCluster, environment: dict[str, str], consumer: subprocess.Popen[str]
) -> None:
    assert run("producer", environment).returncode == 0
    assert consumer.stdout is not None
    billed: set[str] = set()
    while len(billed) < 5:  # those that are paid
        billed.add(consumer.stdout.readline())
    assert billed == {f"billed order {number} after 0 retries\n" for number in (1, 3, 5, 7, 9)}
    # The others have failed and come again; a clock that stops short tries again until they do.
    os.set_blocking(consumer.stdout.fileno(), False)
    for _ in range(PATIENCE_S * 10):
        rocketmq.advance(seconds=10)
        billed.update(consumer.stdout.readlines())
        if len(billed) == 10:
            break
        try:
            consumer.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    retried = {f"billed order {number} after 1 retries\n" for number in (0, 2, 4, 6, 8)}
    assert retried <= billed
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(PATIENCE_S) == 0
