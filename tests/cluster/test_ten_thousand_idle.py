"""A name server in a process of its own, and crowds at its door.

Measured on Linux, x86-64, CPython 3.11, uvloop 0.23: the process starts with 39 MiB. A connection
that never sent a byte costs 0.9 KiB of it, one that asked something and fell silent 5 KiB (the
kernel's buffers are not counted). A peer that floods the server and never reads its answers costs
up to 1.6 MiB: answers up to 1 MiB, and one read of requests that are decoded and not served yet.
The bounds below leave a factor of three.
"""

from __future__ import annotations

import contextlib
import random
import re
import resource
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import PATIENCE_S, NameServerProcess

from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, FrameDecoder, encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CROWD = 10_000
DESCRIPTORS_NEEDED = CROWD + 500
SILENT_BYTES_MAX = 3 * 1024
SPOKE_BYTES_MAX = 15 * 1024
FLOOD_BYTES_MAX = 5 * 1024 * 1024
ENOUGH_DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= DESCRIPTORS_NEEDED

QUESTION = Command(RequestCode.GET_NAMESRV_CONFIG)

crowded = pytest.mark.skipif(
    not ENOUGH_DESCRIPTORS,
    reason=f"the hard limit of descriptors is below {DESCRIPTORS_NEEDED} (ulimit -Hn)",
)


class Process(NameServerProcess):
    """A running name server, seen from outside."""

    def dial(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        # Hang up with a reset: ten thousand ports in TIME_WAIT would be missed by the next run.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return sock

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.popen.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match is not None
        return int(match[1]) * 1024

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.popen.pid}/fd").iterdir())


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("nameserver")
    with Process(folder, "-o", "writeStallMillis=1000") as process:
        yield process
    assert "Traceback" not in process.log.read_text()


@pytest.fixture
def healthy(process: Process) -> Iterator[socket.socket]:
    """A client that must be served before, during and after."""
    with process.dial() as sock:
        assert ask(sock).code == 0
        yield sock
        assert ask(sock).code == 0


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def crowd_of(process: Process, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(process.dial()) for _ in range(count)]


def ask(sock: socket.socket) -> Command:
    sock.sendall(encode_frame(QUESTION))
    return answer(sock)


def answer(sock: socket.socket) -> Command:
    head = receive(sock, 4)
    (command,) = FrameDecoder().feed(head + receive(sock, struct.unpack(">i", head)[0]))
    return command


def receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        assert chunk, "the server hung up"
        data += chunk
    return data


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.01)


@crowded
@pytest.mark.usefixtures("many_descriptors")
def test_ten_thousand_silent_connections_cost_little_and_disturb_nobody(
    process: Process, healthy: socket.socket
) -> None:
    resident, descriptors = process.resident_bytes(), process.descriptors()
    with crowd_of(process, CROWD) as crowd:
        wait_until(lambda: process.descriptors() >= descriptors + CROWD, "accepting them all")
        assert ask(healthy).code == 0
        assert process.resident_bytes() - resident < CROWD * SILENT_BYTES_MAX
        # They are not forgotten: each may speak whenever it likes.
        for sock in (crowd[0], crowd[CROWD // 2], crowd[-1]):
            assert ask(sock).code == 0
    wait_until(lambda: process.descriptors() <= descriptors, "freeing the descriptors")


@crowded
@pytest.mark.usefixtures("many_descriptors")
def test_ten_thousand_idle_clients_cost_little_and_disturb_nobody(
    process: Process, healthy: socket.socket
) -> None:
    resident, descriptors = process.resident_bytes(), process.descriptors()
    with crowd_of(process, CROWD) as crowd:
        for sock in crowd:
            sock.sendall(encode_frame(QUESTION))
        for sock in crowd:
            assert answer(sock).code == 0
        assert ask(healthy).code == 0
        assert process.resident_bytes() - resident < CROWD * SPOKE_BYTES_MAX
    wait_until(lambda: process.descriptors() <= descriptors, "freeing the descriptors")


def test_storm_of_garbage_leaves_nothing_behind(process: Process, healthy: socket.socket) -> None:
    noise = random.Random(20)
    resident, descriptors = process.resident_bytes(), process.descriptors()
    half_a_frame = struct.pack(">iI", 1_000_000, 100)
    with crowd_of(process, 200) as crowd:
        for number, sock in enumerate(crowd):
            prefix = half_a_frame if number % 4 == 0 else b""  # some look good for a while
            with contextlib.suppress(ConnectionError):
                sock.sendall(prefix + noise.randbytes(64 * 1024))
        assert ask(healthy).code == 0
        assert process.resident_bytes() - resident < 64 * 1024 * 1024
    wait_until(lambda: process.descriptors() <= descriptors, "freeing the descriptors")
    assert "closed: broken stream: " in process.log.read_text()


@pytest.mark.parametrize(
    "question",
    [encode_frame(QUESTION), struct.pack(">iI", 6, 2) + b"{}"],
    ids=["long-answers", "smallest-requests"],
)
def test_peers_that_ask_and_never_read_are_held_within_bounds_and_cut_off(
    process: Process, healthy: socket.socket, question: bytes
) -> None:
    resident, descriptors = process.resident_bytes(), process.descriptors()
    logged = len(process.log.read_text())
    piece = question * (256 * 1024 // len(question))
    with crowd_of(process, 8) as crowd:
        wait_until(lambda: process.descriptors() >= descriptors + len(crowd), "accepting them")
        for sock in crowd:
            sock.setblocking(False)
        growths: list[int] = []
        deadline = time.monotonic() + PATIENCE_S
        while process.descriptors() > descriptors:
            assert time.monotonic() < deadline, "the peers are not cut off"
            for sock in crowd:
                # Full, or cut off already.
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    sock.send(piece)
            growths.append(process.resident_bytes() - resident)
            assert ask(healthy).code == 0
        assert max(growths) < len(crowd) * FLOOD_BYTES_MAX
    assert "it did not read its replies for" in process.log.read_text()[logged:]
