"""The filter server with real processes: what a filter may do, and what ends a hostile one."""

from __future__ import annotations

import os
import struct
import sys
import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from firearrow.base.runtime import SystemClock
from firearrow.filters import server as server_module
from firearrow.filters.server import Candidate, FilterLimits, FilterServer
from firearrow.filters.worker import CannotIsolate, call_filter
from firearrow.model.errors import ServerFailed, SubscriptionParseFailed, SystemBusy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="filters need Linux's seccomp"
)

BIG: Final = """
def matches(properties, body):
    return int(properties["size"]) > 5 or body == b"always"
"""
# Any module reaches all others; what holds a filter is the kernel, not the names it can say.
ESCAPED: Final = """
import json
modules = json.codecs.sys.modules
os = modules["os"]

def matches(properties, body):
    {}
    return True
"""


def message(size: int, body: bytes = b"") -> Candidate:
    return Candidate(f"size\x01{size}\x02".encode(), body)


@asynccontextmanager
async def filters(**limits: Any) -> AsyncIterator[FilterServer]:
    given = {"processes": 2, "memory_bytes": 256 << 20, "batch_ms": 10_000} | limits
    server = FilterServer(FilterLimits(**given), SystemClock(), lambda: None)
    try:
        yield server
    finally:
        await server.stop()


def pids(server: FilterServer) -> dict[str, int]:
    return {name: worker.process.pid for name, worker in server._workers.items()}  # noqa: SLF001


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_filter_judges_messages_by_properties_and_body() -> None:
    async with filters() as server:
        await server.install("big", BIG, "a test")
        batch = [message(1), message(9), message(2, b"always"), message(6)]
        assert await server.judge("big", batch) == b"\0\1\1\1"
        assert await server.judge("big", [message(5)]) == b"\0"
        (one,) = server.all()
        assert (one.judged, one.stopped, one.last_error) == (5, 0, "")


async def test_bodies_are_unpacked_for_the_filter() -> None:
    lz4 = pytest.importorskip("lz4.frame")
    zstandard = pytest.importorskip("zstandard")
    body = b"hello" * 100
    async with filters() as server:
        source = f"def matches(properties, body): return body == {body!r}"
        await server.install("hello", source, "a test")
        batch = [
            Candidate(b"", body),
            Candidate(b"", lz4.compress(body), 1),
            Candidate(b"", zstandard.ZstdCompressor().compress(body), 2),
            Candidate(b"", zlib.compress(body), 3),
            Candidate(b"", zlib.compress(b"other"), 3),
        ]
        assert await server.judge("hello", batch) == b"\1\1\1\1\0"
        bomb = Candidate(b"", zlib.compress(bytes(64 << 20)), 3)
        with pytest.raises(ServerFailed, match="longer than"):
            await server.judge("hello", [bomb])


async def test_filter_may_import_what_computes() -> None:
    source = """
import re, json, datetime, decimal, hashlib
from collections import Counter
day = datetime.datetime.strptime("2026-11-18", "%Y-%m-%d")

def matches(properties, body):
    return json.loads(body)["when"] >= day.isoformat() and bool(re.match("a+", "aa"))
"""
    async with filters() as server:
        await server.install("recent", source, "a test")
        batch = [Candidate(b"", b'{"when": "2026-11-19"}'), Candidate(b"", b'{"when": "2025"}')]
        assert await server.judge("recent", batch) == b"\1\0"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def matches(properties, body)", "SyntaxError"),
        ("import os", "filters may import .*; not os"),
        ("x = open('/etc/passwd')", "'open' is not defined"),
        ("def other(properties, body): return True", r"no function matches\(properties, body\)"),
        ("raise SystemExit", "SystemExit"),
        ("import json; json.codecs.sys.modules['os']._exit(3)", "ended with 3"),
        ("x = bytearray(1 << 40)", "MemoryError"),
    ],
)
async def test_filter_that_does_not_load_is_not_installed(source: str, why: str) -> None:
    async with filters() as server:
        with pytest.raises(SubscriptionParseFailed, match=why):
            await server.install("wrong", source, "a test")
        assert server.all() == []
        assert pids(server) == {}
        with pytest.raises(SubscriptionParseFailed, match="no filter 'wrong'"):
            await server.judge("wrong", [message(1)])


@pytest.mark.parametrize(
    "act",
    [
        "os.open('/etc/passwd', os.O_RDONLY)",
        "os.listdir('/')",
        "os.open('/tmp/firearrow-filter-was-here', os.O_CREAT | os.O_WRONLY)",
        "os.unlink('/tmp/firearrow-filter-was-here')",
        "os.fork()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), 9)",
        "os.kill(1, 0)",
        "modules['_thread'].start_new_thread(print, ())",
        "os.setuid(0)",
        "os.pipe()",
        "modules['time'].sleep(0.001)",
    ],
)
async def test_reach_beyond_the_process_is_refused_by_the_kernel(act: str) -> None:
    async with filters() as server:
        await server.install("escaped", ESCAPED.format(act), "a test")
        with pytest.raises(ServerFailed, match=r"PermissionError|can't start new thread"):
            await server.judge("escaped", [message(1)])
        # It was an error of the filter, not its end.
        assert len(pids(server)) == 1


async def test_there_is_no_way_to_the_network() -> None:
    # By hand, since the module is not even loaded: socket(AF_INET, SOCK_STREAM).
    source = """
import struct
ctypes = struct.__loader__ and __import__("json").codecs.sys.modules["ctypes"]
libc = ctypes.CDLL(None, use_errno=True)

def matches(properties, body):
    assert libc.socket(2, 1, 0) == -1
    return ctypes.get_errno() == 1
"""
    async with filters() as server:
        await server.install("caller", source, "a test")
        assert await server.judge("caller", [message(1)]) == b"\1"


async def test_endless_loop_is_killed_reported_and_rests() -> None:
    async with filters(batch_ms=200) as server:
        source = (
            "def matches(properties, body):\n    while 'loop' in properties: pass\n    return 1"
        )
        await server.install("loop", source, "a test")
        assert await server.judge("loop", [message(1)]) == b"\1"
        pid = pids(server)["loop"]
        with pytest.raises(ServerFailed, match="1 messages took longer than 200 ms"):
            await server.judge("loop", [Candidate(b"loop\x01yes\x02", b"")])
        assert not is_alive(pid)
        with pytest.raises(ServerFailed, match=r"was stopped: .*tried again in"):
            await server.judge("loop", [message(1)])
        (one,) = server.all()
        assert one.stopped == 1
        one.rests_until_ms = 0  # its time is over
        assert await server.judge("loop", [message(1)]) == b"\1"


async def test_loop_that_catches_everything_is_killed_too() -> None:
    async with filters(batch_ms=200) as server:
        source = ESCAPED.format(
            "modules['signal'].signal(15, modules['signal'].SIG_IGN)\n"
            "    while True:\n        try: 1 // 0\n        except BaseException: pass"
        )
        await server.install("stubborn", source, "a test")
        with pytest.raises(ServerFailed, match="took longer"):
            await server.judge("stubborn", [message(1)])
        assert pids(server) == {}


async def test_filter_that_eats_memory_gets_no_more() -> None:
    async with filters(memory_bytes=128 << 20) as server:
        source = "kept = []\ndef matches(properties, body):\n    kept.append(bytearray(1 << 24))\n"
        await server.install("hungry", source, "a test")
        with pytest.raises(ServerFailed, match="MemoryError"):
            await server.judge("hungry", [message(1)] * 20)


async def test_crash_of_one_filter_is_not_noticed_by_another() -> None:
    async with filters() as server:
        await server.install("big", BIG, "a test")
        await server.install("crash", ESCAPED.format("os._exit(7)"), "a test")
        assert await server.judge("big", [message(9)]) == b"\1"
        pid = pids(server)["big"]
        with pytest.raises(ServerFailed, match="crash was stopped: its process ended with 7"):
            await server.judge("crash", [message(1)])
        assert await server.judge("big", [message(9)]) == b"\1"
        assert pids(server) == {"big": pid}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("b'\\xff' * 8", "answered with"),
        ("b'\\0\\0\\0\\2\\0\\1' * 2", "judged 1 of 2"),
        ("b'\\0\\0\\0\\1\\0'", "judged 0 of 2"),
    ],
)
async def test_forged_answers_end_the_process(answer: str, why: str) -> None:
    async with filters() as server:
        source = (
            f"def say(number):\n    try: os.write(number, {answer})\n    except OSError: pass\n"
            + ESCAPED.format("[say(number) for number in range(3, 99)]")
        )
        await server.install("forger", source, "a test")
        with pytest.raises(ServerFailed, match=why):
            await server.judge("forger", [message(1), message(2)])
        assert pids(server) == {}


async def test_error_of_a_filter_names_the_line() -> None:
    async with filters() as server:
        await server.install("big", BIG, "a test")
        with pytest.raises(ServerFailed, match=r"filter big: KeyError: 'size' \(line 3\)"):
            await server.judge("big", [Candidate(b"", b"")])
        assert await server.judge("big", [message(9)]) == b"\1"


async def test_no_more_processes_run_than_allowed() -> None:
    async with filters(processes=1) as server:
        for name in ("one", "two"):
            await server.install(name, BIG, "a test")
        for name in ("one", "two", "one"):
            assert await server.judge(name, [message(9)]) == b"\1"
            assert list(pids(server)) == [name]
        async with server.find("one").turn:
            with pytest.raises(SystemBusy, match="filterServerNums"):
                await server.judge("two", [message(9)])


async def test_process_is_replaced_before_its_processor_time_is_used_up() -> None:
    async with filters() as server:
        await server.install("big", BIG, "a test")
        await server.judge("big", [message(9)])
        before = pids(server)["big"]
        server._workers["big"].busy_ms = server_module.CPU_SECONDS * 500  # noqa: SLF001
        assert await server.judge("big", [message(9)]) == b"\1"
        assert pids(server)["big"] != before
        assert not is_alive(before)


async def test_new_version_takes_the_place_of_the_old_one_and_removal_ends_it() -> None:
    async with filters() as server:
        await server.install("big", BIG, "a test")
        assert await server.judge("big", [message(4)]) == b"\0"
        old = pids(server)["big"]
        await server.install("big", BIG.replace("> 5", "> 3"), "a test")
        assert await server.judge("big", [message(4)]) == b"\1"
        assert not is_alive(old)
        await server.remove("big", "a test")
        assert pids(server) == {}
        with pytest.raises(SubscriptionParseFailed, match="no filter"):
            await server.remove("big", "a test")


@pytest.mark.parametrize("name", ["", "../x", "a b", "1a", "a" * 65, "ä"])
async def test_odd_names_are_refused(name: str) -> None:
    async with filters() as server:
        with pytest.raises(SubscriptionParseFailed, match="no name for a filter"):
            await server.install(name, BIG, "a test")


def test_machine_with_unknown_system_calls_runs_no_filter() -> None:
    with pytest.raises(CannotIsolate, match="riscv64"):
        call_filter("riscv64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_call_filter_lands_on_the_right_verdict(machine: str) -> None:
    raw = call_filter(machine)
    program = list(struct.iter_unpack("=HBBI", raw))
    assert [code for code, *_ in program[-2:]] == [6, 6]

    def verdict(architecture: int, number: int) -> int:
        at, word = 0, 0
        while True:
            code, true, false, operand = program[at]
            if code == 0x06:
                return int(operand)
            if code == 0x20:
                word = {0: number, 4: architecture}[operand]
                at += 1
                continue
            holds = word == operand if code == 0x15 else word >= operand
            at += 1 + (true if holds else false)

    ours = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    read, socket, fork = {"x86_64": (0, 41, 57), "aarch64": (63, 198, 220)}[machine]
    assert verdict(ours, read) == 0x7FFF0000
    assert verdict(ours, socket) == verdict(ours, fork) == 0x00050001
    assert verdict(ours, read | 0x40000000) == 0x00050001
    assert verdict(0x40000003, read) == 0x80000000
