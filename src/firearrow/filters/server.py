"""The filter server: filters written in Python by users, each in a process of its own.

A filter that crashes, loops or eats memory costs its own process, which is killed, and its own
pulls, which are told why; it rests for a while before it is tried again. Nothing here waits for
a filter on the event loop: processes are started in threads and spoken to over sockets.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.base.runtime import time_limit
from firearrow.model.errors import ServerFailed, SubscriptionParseFailed, SystemBusy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from firearrow.base.runtime import Clock

log = logging.getLogger(__name__)

WORKER: Final = Path(__file__).with_name("worker.py")
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
SOURCE_BYTES_MAX: Final = 64 * 1024
REPLY_BYTES_MAX: Final = 64 * 1024
INSTALLED_MAX: Final = 1_000
WAITING_MAX: Final = 1_000  # pulls that wait for their turn, per filter
START_MS: Final = 20_000  # until a process is ready: it loads what filters may import
REST_MS: Final = 5_000  # after a filter had to be stopped
CPU_SECONDS: Final = 60  # of one process; a fresh one takes over in time


@dataclass(frozen=True, slots=True)
class FilterLimits:
    processes: int  # at the same time; 0: no filters at all
    memory_bytes: int
    batch_ms: int  # for one batch of messages


class Candidate(NamedTuple):
    """A message to be judged. `compression` is that of the system flag: 0 for none."""

    properties: bytes
    body: bytes
    compression: int = 0


@dataclass(slots=True, eq=False)
class InstalledFilter:
    name: str
    source: str
    installed_ms: int
    installed_by: str
    judged: int = 0
    stopped: int = 0  # times
    last_error: str = ""
    rests_until_ms: int = 0  # on the clock that never jumps
    waiting: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Broken(Exception):
    """A worker has ended, or does not keep to the protocol."""


class Worker:
    """One process and the conversation with it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer
        self.busy_ms = 0

    @classmethod
    async def start(cls, limits: FilterLimits) -> Worker:
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.to_thread(_spawn, theirs.fileno(), limits)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=REPLY_BYTES_MAX)
        return cls(process, reader, writer)

    async def ask(self, parts: Iterable[bytes]) -> tuple[int, bytes]:
        """Send a frame and wait for its answer: 0 and content, or 1 and a complaint."""
        content = b"".join(parts)
        try:
            self._writer.writelines((len(content).to_bytes(4, "big"), content))
            await self._writer.drain()
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            if not 1 <= length <= REPLY_BYTES_MAX:
                raise Broken(f"it answered with {length} bytes")
            reply = await self._reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            raise Broken(await self._ending()) from None
        return reply[0], reply[1:]

    async def _ending(self) -> str:
        await self.stop()
        code = self.process.returncode
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with {code}"

    async def stop(self) -> None:
        """Kill it, whatever it does."""
        self._writer.close()
        if self.process.poll() is None:
            self.process.kill()
        await asyncio.shield(asyncio.to_thread(self.process.wait))


def _spawn(descriptor: int, limits: FilterLimits) -> subprocess.Popen[bytes]:
    """Start a worker that has nothing of ours: no environment, no open files but one socket."""
    numbers = (descriptor, limits.memory_bytes, CPU_SECONDS)
    return subprocess.Popen(
        [sys.executable, "-I", "-B", str(WORKER), *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        env={},
        start_new_session=True,
    )


class FilterServer:
    """Installed filters, and the processes of those that are in use."""

    def __init__(self, limits: FilterLimits, clock: Clock, changed: Callable[[], None]) -> None:
        self._limits = limits
        self._clock = clock
        self._changed = changed  # what is installed
        self._installed: dict[str, InstalledFilter] = {}
        self._workers: dict[str, Worker] = {}  # the one that was used last is last
        self._starting = asyncio.Lock()  # one process starts at a time

    @property
    def is_on(self) -> bool:
        return self._limits.processes > 0

    # --- what is installed ------------------------------------------------------------------

    def load(self, filters: Iterable[InstalledFilter]) -> None:
        self._installed = {one.name: one for one in filters}

    def all(self) -> list[InstalledFilter]:
        return list(self._installed.values())

    def find(self, name: str) -> InstalledFilter:
        found = self._installed.get(name)
        if found is None:
            raise SubscriptionParseFailed(f"no filter {name!r} is installed on this broker")
        return found

    async def install(self, name: str, source: str, by: str) -> None:
        """Put a filter in place, or in the place of another, once it has shown that it loads."""
        if not NAME.fullmatch(name):
            raise SubscriptionParseFailed(
                f"{name!r} is no name for a filter: a letter, then up to 63 letters, digits, _ . -"
            )
        if len(source.encode("utf-8", "replace")) > SOURCE_BYTES_MAX:
            raise SubscriptionParseFailed(f"a filter has at most {SOURCE_BYTES_MAX} bytes")
        if len(self._installed) >= INSTALLED_MAX and name not in self._installed:
            raise SystemBusy(f"{INSTALLED_MAX} filters are installed already; remove one")
        candidate = InstalledFilter(name, source, self._clock.now_ms(), by)
        async with self._starting:
            worker = await self._started(candidate)
        await worker.stop()
        await self._retire(name)
        self._installed[name] = candidate
        log.info("%s installed filter %s", by, name)
        self._changed()

    async def remove(self, name: str, by: str) -> None:
        del self._installed[self.find(name).name]
        await self._retire(name)
        log.info("%s removed filter %s", by, name)
        self._changed()

    # --- judging ----------------------------------------------------------------------------

    async def judge(self, name: str, messages: Sequence[Candidate]) -> bytes:
        """A byte for each message, 1 if it is wanted; an error says why there is none."""
        wanted = self.find(name)
        if wanted.waiting >= WAITING_MAX:
            raise SystemBusy(f"filter {name}: {WAITING_MAX} pulls wait for it already")
        wanted.waiting += 1
        try:
            async with wanted.turn:
                self._refuse_while_it_rests(wanted)
                return await self._judge(wanted, messages)
        finally:
            wanted.waiting -= 1

    def _refuse_while_it_rests(self, wanted: InstalledFilter) -> None:
        left_ms = wanted.rests_until_ms - self._clock.elapsed_ms()
        if left_ms > 0:
            raise ServerFailed(
                f"filter {wanted.name} was stopped: {wanted.last_error}; it is tried again in "
                f"{left_ms} ms"
            )

    async def _judge(self, wanted: InstalledFilter, messages: Sequence[Candidate]) -> bytes:
        worker = await self._worker_of(wanted)
        started_ms = self._clock.elapsed_ms()
        try:
            async with time_limit(self._clock, self._limits.batch_ms):
                kind, content = await worker.ask(_batch(messages))
            if kind == 0 and len(content) != len(messages):
                raise Broken(f"it judged {len(content)} of {len(messages)} messages")  # noqa: TRY301
        except TimeoutError:
            limit = f"{len(messages)} messages took longer than {self._limits.batch_ms} ms"
            raise await self._stopped(wanted, limit) from None
        except Broken as error:
            raise await self._stopped(wanted, str(error)) from None
        except BaseException:
            # Whoever asked has gone; the answer to come belongs to nobody.
            await self._retire(wanted.name)
            raise
        worker.busy_ms += self._clock.elapsed_ms() - started_ms
        if kind != 0:
            wanted.last_error = content.decode("utf-8", "replace")
            raise ServerFailed(f"filter {wanted.name}: {wanted.last_error}")
        wanted.judged += len(messages)
        return content

    async def _stopped(self, wanted: InstalledFilter, why: str) -> ServerFailed:
        await self._retire(wanted.name)
        wanted.stopped += 1
        wanted.last_error = why
        wanted.rests_until_ms = self._clock.elapsed_ms() + REST_MS
        log.warning("filter %s was stopped: %s", wanted.name, why)
        return ServerFailed(f"filter {wanted.name} was stopped: {why}")

    # --- processes --------------------------------------------------------------------------

    async def _worker_of(self, wanted: InstalledFilter) -> Worker:
        worker = self._workers.pop(wanted.name, None)
        if worker is not None and worker.busy_ms * 2 < CPU_SECONDS * 1_000:
            self._workers[wanted.name] = worker
            return worker
        if worker is not None:
            await worker.stop()
        async with self._starting:
            await self._make_room()
            try:
                worker = await self._started(wanted)
            except SubscriptionParseFailed as error:
                raise await self._stopped(wanted, str(error)) from None
            self._workers[wanted.name] = worker
        return worker

    async def _make_room(self) -> None:
        """End the process that was idle longest, if there are as many as there may be."""
        if len(self._workers) < self._limits.processes:
            return
        for name in list(self._workers):
            known = self._installed.get(name)
            if known is None or not known.turn.locked():
                await self._retire(name)
                return
        raise SystemBusy(
            f"all {self._limits.processes} filter processes (filterServerNums) are busy"
        )

    async def _started(self, wanted: InstalledFilter) -> Worker:
        """A process that has loaded a filter; SubscriptionParseFailed if it does not load."""
        try:
            worker = await Worker.start(self._limits)
        except OSError as error:
            raise ServerFailed(
                f"filter {wanted.name}: no process can be started for it: {error}"
            ) from error
        try:
            async with time_limit(self._clock, START_MS):
                kind, content = await worker.ask([wanted.source.encode("utf-8", "replace")])
        except TimeoutError:
            kind, content = 1, f"it did not load within {START_MS} ms".encode()
        except Broken as error:
            kind, content = 1, str(error).encode()
        except BaseException:
            await worker.stop()
            raise
        if kind != 0:
            await worker.stop()
            why = content.decode("utf-8", "replace")
            raise SubscriptionParseFailed(f"filter {wanted.name} does not load: {why}")
        return worker

    async def _retire(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            await worker.stop()

    async def stop(self) -> None:
        for name in list(self._workers):
            await self._retire(name)


def _batch(messages: Sequence[Candidate]) -> list[bytes]:
    parts = [len(messages).to_bytes(4, "big")]
    parts += [
        struct.pack(">IIB", len(one.properties), len(one.body), one.compression) for one in messages
    ]
    for one in messages:
        parts += (one.properties, one.body)
    return parts
