"""An event loop whose time jumps to the next event, with machines that die and stop on it.

Nothing waits for real: a minute of a cluster takes as long as the work that is done in it. Every
callback belongs to the `Machine` in whose context it was made; of a dead machine nothing runs any
more, and of a stopped one nothing until it goes on. There are no sockets and no threads: the
network is a `MemoryNetwork`, and what is given to a thread is done at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from typing import TYPE_CHECKING, Any, Final, Protocol

from firearrow.testing.threads import SteppedExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

START_S: Final = 1_000.0  # what the clock that never jumps shows at first
EPOCH_MS: Final = 1_700_000_000_000

_machine: contextvars.ContextVar[Machine | None] = contextvars.ContextVar("machine", default=None)


class Port(Protocol):
    """A port that is open; `MemoryListener` is one."""

    port: int

    def close(self) -> None: ...


class Network(Protocol):
    """What a loop needs of its network; `MemoryNetwork` is one."""

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Port: ...

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class StandstillError(Exception):
    """Nothing is due and nothing ever will be, and still somebody waits."""


class Machine:
    """Where a program runs, from its start to its end; a restart is another one."""

    def __init__(self, loop: VirtualLoop, host: str) -> None:
        self._loop = loop
        self.host = host
        self.is_dead = False
        self.is_stopped = False
        self._put_off: list[tuple[Callable[..., object], tuple[Any, ...], contextvars.Context]] = []

    def run(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task here; everything that it starts is here too."""
        context = contextvars.copy_context()
        context.run(_machine.set, self)
        return self._loop.create_task(work, name=f"{self.host}.{name}", context=context)

    def kill(self) -> None:
        """Nothing of this machine happens any more; not even what would clean up."""
        self.is_dead = True
        self._put_off.clear()

    def stop(self) -> None:
        """As SIGSTOP does: nothing happens until it goes on, and then everything that was due."""
        self.is_stopped = True

    def go_on(self) -> None:
        self.is_stopped = False
        waiting, self._put_off = self._put_off, []
        for callback, args, context in waiting:
            self._loop.call_soon(callback, *args, context=context)

    def step(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        """Run a callback of this machine, if it can run anything."""
        if self.is_dead:
            return
        if self.is_stopped:
            self._put_off.append((callback, args, context))
            return
        callback(*args)


def current_machine() -> Machine | None:
    """Where the code that asks is running."""
    return _machine.get()


class _NoSelector:
    """Stands where a loop waits for sockets: the wait is over at once, and time has passed."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise StandstillError("nothing is due, and somebody waits")
        self._loop.pass_time(timeout)
        return []

    def close(self) -> None:
        pass


class VirtualLoop(asyncio.BaseEventLoop):
    """Give it a `network`, and run a whole cluster on it."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _NoSelector(self)
        self._now_s = START_S
        self._is_over = False
        # What is unfinished stays, dead or alive: a task that is thrown away would still run what
        # stands in its `finally`.
        self._unfinished: dict[asyncio.Task[Any], None] = {}
        self.network: Network | None = None
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]
        self.set_default_executor(SteppedExecutor())

    # --- time -------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    def pass_time(self, seconds: float) -> None:
        self._now_s += max(0.0, seconds)

    # --- callbacks belong to machines -------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,  # noqa: ANN401 - as asyncio has it
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if context is None:  # an empty one counts, and is false
            context = contextvars.copy_context()
        if self._is_over:
            return asyncio.Handle(callback, args, self, context)
        machine = context.get(_machine)
        if machine is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(machine.step, callback, args, context, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,  # noqa: ANN401 - as asyncio has it
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if context is None:  # an empty one counts, and is false
            context = contextvars.copy_context()
        if self._is_over:
            return asyncio.TimerHandle(when, callback, args, self, context)
        machine = context.get(_machine)
        if machine is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, machine.step, callback, args, context, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,  # noqa: ANN401 - as asyncio has it
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)  # there is one thread

    # --- what a loop does with sockets ------------------------------------------------------

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **_: Any,  # noqa: ANN401 - as asyncio has it
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert self.network is not None
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **_: Any,  # noqa: ANN401 - as asyncio has it
    ) -> Port:
        return self.serve_in_memory(protocol_factory, host, port)

    def serve_in_memory(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Port:
        """Listen; OSError if the port is taken."""
        assert self.network is not None
        return self.network.listen(protocol_factory, host, port)

    def run_story(self, story: Coroutine[Any, Any, None]) -> None:
        """Run to the end of `story`; what still goes on then is left as it is."""
        asyncio.set_event_loop(self)
        try:
            self.run_until_complete(story)
        finally:
            self._is_over = True
            self._throw_away()
            asyncio.set_event_loop(None)
            self.close()

    def _throw_away(self) -> None:
        asyncio._set_running_loop(self)  # noqa: SLF001 - there are `finally`s that ask for it
        try:
            for task in self._unfinished:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                work = task.get_coro()
                with contextlib.suppress(BaseException):
                    assert work is not None
                    work.close()
            self._unfinished.clear()
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    def _make_task(
        self,
        _: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=self, context=context)
        self._unfinished[task] = None
        task.add_done_callback(lambda done: self._unfinished.pop(done, None))
        return task

    async def shutdown_default_executor(self, *_: object) -> None:
        pass

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        pass


class LoopClock:
    """All the time there is, as the loop has it. Implements `firearrow.base.runtime.Clock`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + self.elapsed_ms()

    def elapsed_ms(self) -> int:
        return round(self._loop.time() * 1_000)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(max(0, delay_ms) / 1_000, callback)

    async def sleep(self, delay_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1_000)
