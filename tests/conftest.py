"""What all tests share: how Hypothesis behaves, and how asynchronous tests run.

An ``async def`` test runs on uvloop, the loop of our servers, with a debug-free fresh loop each.
A test must not leave a task behind.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Coroutine

# Machines are noisy: no verdict depends on time. Continuous integration tries the same examples
# each run, so that a red run is about the change at hand; `dev` looks for new ones.
settings.register_profile(
    "dev", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run ``async def`` tests to their end on a loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001 - pytest has no public name for it
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_leaving_nothing(pyfuncitem.obj(**arguments)))
    return True


async def _leaving_nothing(test: Coroutine[Any, Any, None]) -> None:
    await test
    await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, f"the test left tasks behind: {left}"
