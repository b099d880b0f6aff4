"""Our broker is killed under load: what it acknowledged is there after every start, once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from .firearrow import FireArrowCluster
from .processes import Bench, wait_until
from .rounds import start_java_round

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS: Final = 3
ACKNOWLEDGED_BEFORE_A_KILL: Final = 500
PROGRESS_TIMEOUT_S: Final = 30.0


def test_message_that_was_acknowledged_survives_every_kill(
    bench: Bench,
    unique: Callable[[str], str],
    record_property: Callable[[str, object], None],
) -> None:
    ours = FireArrowCluster(bench, {"flushDiskType": "SYNC_FLUSH"})
    topic = unique("endured")
    running = start_java_round(
        bench, ours.nameserver, topic, ["send-through-kills", "find-acknowledged"]
    )

    def acknowledged() -> int:
        lines = running.process.output().splitlines()
        told = [line for line in lines if line.startswith("acknowledged ")]
        return int(told[-1].split()[1]) if told else 0

    def wait_for_more(than: int) -> None:
        wait_until(
            lambda: acknowledged() > than,
            timeout_s=PROGRESS_TIMEOUT_S,
            what=lambda: f"more than {than} acknowledged messages\n{running.process.tail()}",
        )

    writable_s = []
    for _ in range(KILLS):
        wait_for_more(acknowledged() + ACKNOWLEDGED_BEFORE_A_KILL)
        ours.kill()
        started = time.monotonic()
        ours.start()
        ready_s = time.monotonic() - started
        wait_for_more(acknowledged())
        writable_s.append((round(ready_s, 2), round(time.monotonic() - started, 2)))
    wait_for_more(acknowledged() + ACKNOWLEDGED_BEFORE_A_KILL)
    running.process.send_line("enough")
    outcome = running.finish()
    record_property("ready and writable after a kill, in seconds", writable_s)

    assert outcome.failures() == {}
    assert outcome["send-through-kills"]["acknowledged"] > (KILLS + 1) * ACKNOWLEDGED_BEFORE_A_KILL
    assert outcome["find-acknowledged"]["found"] >= outcome["send-through-kills"]["acknowledged"]
    print(f"ready and writable after a kill, in seconds: {writable_s}")
