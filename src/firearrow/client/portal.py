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
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from firearrow.client.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")
T = TypeVar("T")

START_TIMEOUT_S: Final = 10


class _Call:
    """One call on its way; the thread that made it waits on `lock`."""

    __slots__ = ("arguments", "error", "function", "future", "keywords", "lock", "result", "task")

    def __init__(self, function: Any, arguments: Any, keywords: Any) -> None:  # noqa: ANN401
        self.function = function
        self.arguments = arguments
        self.keywords = keywords
        self.lock = threading.Lock()
        self.lock.acquire()
        self.result: Any = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.future: Future[Any] | None = None  # who waits with this instead


class Portal:
    """A private event loop in a thread of its own, and the door to it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: deque[_Call] = deque()
        self._wake_comes = False
        self.generation = 0  # grows with every fork: what belongs to an older one is dead

    def call(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        *arguments: P.args,
        **keywords: P.kwargs,
    ) -> T:
        """Run a coroutine function on the loop and wait for it, in any thread but the loop's."""
        loop = self._loop or self._start()
        if threading.current_thread() is self._thread:
            raise ClientClosed(
                "a blocking client was called on its own event loop; use firearrow.aio there"
            )
        call = _Call(function, arguments, keywords)
        self._calls.append(call)
        if not self._wake_comes:
            self._wake_comes = True
            loop.call_soon_threadsafe(self._take_calls)
        try:
            call.lock.acquire()
        except BaseException:  # Ctrl-C: what was begun must not go on unseen
            loop.call_soon_threadsafe(self._cancel, call)
            raise
        if call.error is not None:
            try:
                raise call.error
            finally:
                call.error = None  # no cycle through the traceback
        return call.result  # type: ignore[no-any-return]

    def begin(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        *arguments: P.args,
        **keywords: P.kwargs,
    ) -> Future[T]:
        """Start a coroutine function on the loop; the future gets its result."""
        loop = self._loop or self._start()
        future: Future[T] = Future()
        call = _Call(function, arguments, keywords)
        call.future = future
        self._calls.append(call)
        if not self._wake_comes:
            self._wake_comes = True
            loop.call_soon_threadsafe(self._take_calls)
        return future

    def _take_calls(self) -> None:
        self._wake_comes = False
        calls = self._calls
        while calls:
            call = calls.popleft()
            call.task = asyncio.get_running_loop().create_task(_serve(call))

    @staticmethod
    def _cancel(call: _Call) -> None:
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
                self._thread = thread
                self._loop = loop
            return self._loop

    def forget(self) -> None:
        """In a child after a fork: the thread stayed with the parent."""
        loop = self._loop
        self._guard = threading.Lock()
        self._loop = self._thread = None
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


async def _serve(call: _Call) -> None:
    try:
        call.result = await call.function(*call.arguments, **call.keywords)
    except asyncio.CancelledError:
        call.error = ClientClosed("the call was cancelled")
    except BaseException as error:
        call.error = error
    finally:
        call.lock.release()
        if call.future is not None and call.future.set_running_or_notify_cancel():
            if call.error is not None:
                call.future.set_exception(call.error)
            else:
                call.future.set_result(call.result)


portal: Final = Portal()
os.register_at_fork(after_in_child=portal.forget)
