"""Running a role in the foreground, on uvloop where there is one, until a signal comes."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

GC_THRESHOLDS: Final = (10_000, 20, 50)  # new objects, and rounds; there are few cycles in a server


class Role(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


def run_until_stopped(role: Role, *, ready: Callable[[], None]) -> None:
    """Start `role`, say so, and stop it cleanly on SIGTERM or SIGINT."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(role, ready))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, or None for the standard loop where uvloop is not to be had."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(role: Role, ready: Callable[[], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await role.start()
    # What is there now stays: nobody need look through it again and again while others wait.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        ready()
        sys.stdout.flush()  # whoever waits for the line reads a pipe, not a terminal
        await stop.wait()
    finally:
        await role.stop()
