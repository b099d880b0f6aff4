"""Threads that a test moves by hand, so that a run with threads in it repeats to the letter."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class SteppedExecutor(ThreadPoolExecutor):
    """Runs work in the caller's thread: at once, or while `held` when `run` is called.

    Make it a loop's default executor and `asyncio.to_thread` uses it.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.held = False
        self._waiting: deque[Callable[[], None]] = deque()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                _settle(future, lambda: fn(*args, **kwargs))

        if self.held:
            self._waiting.append(work)
        else:
            work()
        return future

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def run(self, most: int | None = None) -> None:
        """Do what was held back, the oldest first."""
        while self._waiting and (most is None or most > 0):
            self._waiting.popleft()()
            most = None if most is None else most - 1

    def drop(self) -> None:
        """Forget what was held back: its process is dead."""
        self._waiting.clear()


def _settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
