"""Progress events of Spark's, added up."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from firearrow.pipeline.display import LINE_EVERY_S, Display, line_of
from firearrow.pipeline.progress import Progress, lag_of


def event(batch: int, rows: int, *, second: int = 0, ran: bool = True, **more: Any) -> Any:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "timestamp": f"2026-11-18T10:00:{second:02}.000Z",
        "processedRowsPerSecond": 50.0,
        "durationMs": {"addBatch": 5} if ran else {"triggerExecution": 1},
    } | more


def test_rows_and_batches_add_up() -> None:
    progress = Progress("orders").and_then(event(0, 10)).and_then(event(1, 5, second=1))
    assert (progress.rows, progress.batches, progress.last_batch) == (15, 2, 1)
    assert progress.rows_per_second == 50.0


def test_an_event_seen_twice_counts_once() -> None:
    once = Progress("orders").and_then(event(3, 10))
    assert once.and_then(event(3, 10)) is once


def test_an_idle_trigger_is_no_batch() -> None:
    idle = Progress("orders").and_then(event(0, 10)).and_then(event(1, 0, ran=False))
    assert (idle.batches, idle.last_batch, idle.rows) == (1, 0, 10)
    assert idle.and_then(event(1, 7)).batches == 2


def test_lag_is_what_lies_between_the_last_batch_and_the_head_of_each_queue() -> None:
    source = {
        "endOffset": json.dumps({"orders@a@0": 4, "orders@a@1": 9, "v": 1}),
        "latestOffset": {"orders@a@0": 10, "orders@a@1": 9, "orders@a@2": 3, "v": 1},
    }
    assert lag_of({"sources": [source]}) == {"orders@a@0": 6, "orders@a@1": 0}
    assert lag_of({"sources": [{"endOffset": "no json", "latestOffset": None}]}) == {}


def test_rates_that_are_no_numbers_are_nought() -> None:
    strange = event(0, 1, processedRowsPerSecond=float("inf"), inputRowsPerSecond=float("nan"))
    progress = Progress("orders").and_then(strange)
    assert (progress.rows_per_second, progress.input_rows_per_second) == (0.0, 0.0)


def test_late_rows_and_state_are_told() -> None:
    operators = [{"numRowsTotal": 4, "numRowsDroppedByWatermark": 2}]
    times = {"watermark": "2026-11-18T09:00:00.000Z"}
    progress = Progress("w").and_then(event(0, 9, stateOperators=operators, eventTime=times))
    progress = progress.and_then(event(1, 9, second=1, stateOperators=operators))
    assert (progress.state_rows, progress.dropped_late) == (4, 4)
    assert progress.as_json()["watermark"] == "2026-11-18T09:00:00.000Z"


def test_elsewhere_than_on_a_terminal_a_line_comes_now_and_then() -> None:
    now = 0.0
    console = Console(file=io.StringIO(), width=120)
    with Display("archive", console=console, elapsed_s=lambda: now) as display:
        for second in range(25):
            now = float(second)
            display.streams([Progress("orders").and_then(event(second, 1))])
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 1 + int(24 // LINE_EVERY_S)
    assert lines[0] == f"archive: {line_of(Progress('orders').and_then(event(0, 1)))}"
