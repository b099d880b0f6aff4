"""Progress on standard error: live on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from firearrow.pipeline.progress import Progress

LINE_EVERY_S: Final = 10.0  # where nobody sees a live display


class Display:
    """What a job shows while it runs. Use it with `with`."""

    def __init__(
        self,
        job: str,
        *,
        console: Console | None = None,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._console = console or Console(stderr=True, highlight=False)
        self._elapsed_s = elapsed_s
        self._live = (
            Live(console=self._console, transient=True, refresh_per_second=4)
            if self._console.is_terminal
            else None
        )
        self._said_at: float | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(f"{self._job}: {text}", markup=False, soft_wrap=True)

    def step(self, what: str, done: int, total: int | None) -> None:
        """A bar for one piece of work; without a total it only moves."""
        if self._live is None:
            of = f" of {total:,}" if total is not None else ""
            self._line(f"{what}: {done:,}{of}")
            return
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            f"{self._job}: {what}",
            ProgressBar(total=total, completed=done, width=40, pulse=total is None),
            f"{done:,}" + (f"/{total:,}" if total is not None else ""),
        )
        self._live.update(grid)

    def streams(self, progress: list[Progress]) -> None:
        """How far each stream is."""
        if self._live is not None:
            self._live.update(streams_table(progress))
            return
        self._line("; ".join(line_of(one) for one in progress))

    def _line(self, text: str) -> None:
        now = self._elapsed_s()
        if self._said_at is None or now - self._said_at >= LINE_EVERY_S:
            self._said_at = now
            self.say(text)


def line_of(progress: Progress) -> str:
    """One stream in one line."""
    lag = f", {progress.lag_total:,} behind" if progress.lag else ""
    batches = "1 batch" if progress.batches == 1 else f"{progress.batches:,} batches"
    return (
        f"{progress.name}: {progress.rows:,} rows in {batches}, "
        f"{progress.rows_per_second:,.0f} a second{lag}"
    )


def streams_table(progress: list[Progress]) -> RenderableType:
    """Streams side by side."""
    table = Table("stream", box=None)
    for name in ("batches", "rows", "rows/s in", "rows/s done", "batch ms", "behind", "state"):
        table.add_column(name, justify="right")
    for one in progress:
        table.add_row(
            one.name,
            f"{one.batches:,}",
            f"{one.rows:,}",
            f"{one.input_rows_per_second:,.0f}",
            f"{one.rows_per_second:,.0f}",
            f"{one.batch_ms:,}",
            f"{one.lag_total:,}" if one.lag else "-",
            f"{one.state_rows:,}" if one.state_rows else "-",
        )
    return table
