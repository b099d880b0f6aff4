"""The way from threads to the one event loop that all blocking clients of a process share.

    any thread ── call(coroutine function) ──▶ deque ── one wake-up ──▶ loop thread
               ◀───────── result, or the exception it raised ──────────

Calls that come together cross over together: the loop is woken once for all of them. After a fork
the child has no loop thread; the portal forgets the parent's and starts a new one when it is needed
(`net/client.py` sees to the sockets).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from firearrow.client.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

P = ParamSpec("P")
T = TypeVar("T")

START_TIMEOUT_S: Final = 10


class Call(Generic[T]):
    """One call on its way: who waits for it sleeps on a lock, or has a future."""

    __slots__ = ("_lock", "_work", "error", "future", "result", "task")

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        future: Future[T] | None = None,
    ) -> None:
        self._work = work
        self.future = future
        self.result: T | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self._lock: threading.Lock | None = None
        if future is None:
            self._lock = threading.Lock()
            self._lock.acquire()

    def begin(self) -> None:
        """On the loop; some calls know a shorter way than a coroutine."""
        self.run(self._work())

    def wait(self) -> T:
        assert self._lock is not None
        self._lock.acquire()
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # no cycle through the traceback
        return self.result  # type: ignore[return-value]

    def run(self, work: Coroutine[Any, Any, T]) -> None:
        """Let a coroutine settle the call."""
        self.task = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, T]) -> None:
        try:
            self.settle(result=await work)
        except asyncio.CancelledError:
            self.settle(error=ClientClosed("the call was cancelled"))
        except BaseException as error:
            self.settle(error=error)

    def settle(self, *, result: T | None = None, error: BaseException | None = None) -> None:
        """It is done: wake whoever waits."""
        self.result, self.error = result, error
        if self._lock is not None:
            self._lock.release()
        elif self.future is not None and self.future.set_running_or_notify_cancel():
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(result)  # type: ignore[arg-type]


class Portal:
    """A private event loop in a thread of its own, and the door to it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id: int | None = None
        self._calls: deque[Call[Any]] = deque()
        self._wake_comes = False
        self.generation = 0  # grows with every fork: what belongs to an older one is dead

    def call(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        *arguments: P.args,
        **keywords: P.kwargs,
    ) -> T:
        """Run a coroutine function on the loop and wait for it, in any thread but the loop's."""
        return self.pass_on(Call(lambda: function(*arguments, **keywords)))

    def pass_on(self, call: Call[T]) -> T:
        """Have a call begun on the loop, and wait for it."""
        loop = self._loop or self._start()
        if threading.get_ident() == self._thread_id:
            raise ClientClosed(
                "a blocking client was called on its own event loop; use firearrow.aio there"
            )
        self.begin(call)
        try:
            return call.wait()
        except KeyboardInterrupt:  # what was begun must not go on unseen
            loop.call_soon_threadsafe(self._cancel, call)
            raise

    def begin(self, call: Call[T]) -> None:
        """Have a call begun on the loop; calls that come together cross over together."""
        loop = self._loop or self._start()
        self._calls.append(call)
        if not self._wake_comes:
            self._wake_comes = True
            loop.call_soon_threadsafe(self._take_calls)

    def _take_calls(self) -> None:
        self._wake_comes = False
        calls = self._calls
        while calls:
            call = calls.popleft()
            try:
                call.begin()
            except BaseException as error:
                call.settle(error=error)

    @staticmethod
    def _cancel(call: Call[Any]) -> None:
        if call.task is not None:
            call.task.cancel()

    def run_soon(self, function: Callable[[], None]) -> None:
        """Call a plain function on the loop, some time."""
        (self._loop or self._start()).call_soon_threadsafe(function)

    # --- the thread -------------------------------------------------------------------------

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None:
                loop = _new_loop()
                ready = threading.Event()
                thread = threading.Thread(
                    target=_turn, args=(loop, ready), name="firearrow-client", daemon=True
                )
                thread.start()
                ready.wait(START_TIMEOUT_S)
                self._thread_id = thread.ident
                self._loop = loop
            return self._loop

    def forget(self) -> None:
        """In a child after a fork: the thread stayed with the parent."""
        loop = self._loop
        self._guard = threading.Lock()
        self._loop = self._thread_id = None
        self._calls = deque()
        self._wake_comes = False
        self.generation += 1
        if loop is not None:
            _abandoned.append(loop)  # its destructor would touch what belongs to the parent


_abandoned: Final[list[asyncio.AbstractEventLoop]] = []


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - an extra of its own, and slow to import
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _turn(loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
    asyncio.set_event_loop(loop)
    loop.call_soon(ready.set)
    loop.run_forever()


portal: Final = Portal()
os.register_at_fork(after_in_child=portal.forget)
