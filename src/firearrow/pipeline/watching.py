"""Watching work on Spark while it runs: show how far it is, and stop it cleanly when told.

A job gets one `Watch`. It follows streams with `follow`, wraps each batch action in `batch`, and
asks `stopping` between pieces of its own work. Streams stop after the batch that is under way;
batch actions are cancelled, and their job goes on from its checkpoint when it is started again.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from firearrow.pipeline.errors import PipelineError, Stopped, explain
from firearrow.pipeline.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from firearrow.pipeline.display import Display

LOOK_S: Final = 0.2  # how often a stream or a stage is looked at
INITIALISING_S: Final = 60.0
START_TRIES: Final = 3
WORKER_LATE: Final = "Python worker failed to connect back"
GRACE_S: Final = 60.0  # how long a batch under way may take when the job is told to stop


class Watch:
    """Owns the answer to "shall we stop?", and tells the display what goes on.

    Args:
        display: Where progress is shown; None shows nothing.
        grace_s: How long a batch under way may take after `stop`.
        elapsed_s: A clock that only goes forward.
    """

    def __init__(
        self,
        display: Display | None = None,
        *,
        grace_s: float = GRACE_S,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._display = display
        self._grace_s = grace_s
        self._elapsed_s = elapsed_s
        self._stop = threading.Event()
        self._listeners: list[Callable[[list[Progress], bool], None]] = []

    # --- stopping ---------------------------------------------------------------------------

    def stop(self) -> None:
        """From a signal handler or another thread: end soon, at a clean point."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait, but not past a stop; True if there was one."""
        return self._stop.wait(max(0.0, seconds))

    # --- showing ----------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """One line for the person at the terminal."""
        if self._display is not None:
            self._display.say(text)

    def step(self, what: str, done: int, total: int | None) -> None:
        """How far a piece of work is that the job counts itself."""
        if self._display is not None:
            self._display.step(what, done, total)

    def on_progress(self, listener: Callable[[list[Progress], bool], None]) -> None:
        """Call `listener` with what the streams have done and whether they still run."""
        self._listeners.append(listener)

    def _show(self, progress: list[Progress], *, running: bool) -> None:
        if self._display is not None:
            self._display.streams(progress)
        for listener in self._listeners:
            listener(progress, running)

    # --- streams ----------------------------------------------------------------------------

    def started(self, start: Callable[[], StreamingQuery]) -> StreamingQuery:
        """Start a query and wait until it has its sources, or has ended.

        Each starts processes of its own, which Spark gives ten seconds and no more. So queries
        start one after the other, and one whose process came too late is started again.
        """
        for _ in range(START_TRIES - 1):
            query = start()
            self._initialised(query)
            failure = None if query.isActive else query.exception()
            if failure is None or WORKER_LATE not in str(failure):
                return query
        return start()

    def _initialised(self, query: StreamingQuery) -> None:
        deadline = self._elapsed_s() + INITIALISING_S
        while (
            query.isActive
            and query.status["message"].startswith("Initializing")
            and self._elapsed_s() < deadline
            and not self._stop.wait(LOOK_S / 4)
        ):
            pass

    def follow(self, *queries: StreamingQuery) -> list[Progress]:
        """Wait until the queries end, or end them when told to stop; their progress.

        Raises:
            PipelineError: A query failed. The others are stopped.
        """
        followed = [_Followed(query) for query in queries]
        try:
            while any(one.query.isActive for one in followed):
                if self._stop.wait(LOOK_S):
                    break
                if self._look(followed):
                    self._show([one.progress for one in followed], running=True)
                if any(one.failed for one in followed):
                    break
            if self.stopping and not any(one.failed for one in followed):
                self._finish_batches(followed)
        finally:
            for one in followed:
                one.stop()
        self._look(followed)
        progress = [one.progress for one in followed]
        self._show(progress, running=False)
        for one in followed:
            one.raise_failure()
        return progress

    def _look(self, followed: Sequence[_Followed]) -> bool:
        new = [one.look() for one in followed]  # every one of them, whatever the first says
        return any(new)

    def _finish_batches(self, followed: Sequence[_Followed]) -> None:
        """Let the batches under way come to their end; each query is stopped at its own."""
        self.say("stopping after the batch that is under way")
        deadline = self._elapsed_s() + self._grace_s
        waiting = [one for one in followed if one.busy]
        before = {id(one): one.progress.last_batch for one in waiting}
        while waiting and self._elapsed_s() < deadline:
            time.sleep(LOOK_S / 4)
            for one in list(waiting):
                one.look()
                if not one.busy or one.progress.last_batch > before[id(one)]:
                    one.stop()
                    waiting.remove(one)

    # --- batch actions ----------------------------------------------------------------------

    @contextmanager
    def batch(self, spark: SparkSession, what: str) -> Iterator[None]:
        """Around one batch action: its tasks are counted, and `stop` cancels it.

        Raises:
            Stopped: The action was cancelled because the job was told to stop.
            PipelineError: It failed.
        """
        if self.stopping:
            raise Stopped(f"{what}: not begun, the job was told to stop")
        context = spark.sparkContext
        group = f"firearrow-{what}-{id(self)}"
        context.setJobGroup(group, what, interruptOnCancel=True)
        over = threading.Event()
        looker = threading.Thread(
            target=self._watch_stages, args=(spark, group, what, over), name="stages", daemon=True
        )
        looker.start()
        try:
            yield
        except PipelineError:
            raise
        except Exception as error:
            if self.stopping:
                raise Stopped(f"{what}: cancelled, the job was told to stop") from error
            raise PipelineError(f"{what} failed: {explain(error)}") from error
        finally:
            over.set()
            looker.join()
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    def _watch_stages(
        self, spark: SparkSession, group: str, what: str, over: threading.Event
    ) -> None:
        tracker = spark.sparkContext.statusTracker()
        done_stages: dict[int, tuple[int, int]] = {}
        while not over.wait(LOOK_S):
            if self.stopping:
                spark.sparkContext.cancelJobGroup(group)
                return
            for job_id in tracker.getJobIdsForGroup(group):
                job = tracker.getJobInfo(job_id)
                for stage_id in job.stageIds if job is not None else []:
                    stage = tracker.getStageInfo(stage_id)
                    if stage is not None:
                        done_stages[stage_id] = (stage.numCompletedTasks, stage.numTasks)
            if done_stages:
                done = sum(one for one, _ in done_stages.values())
                self.step(what, done, sum(total for _, total in done_stages.values()))


class _Followed:
    """One query, and what it has done since we look at it."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self.progress = Progress(query.name or "stream")

    def look(self) -> bool:
        """Take in what is new; True if something was."""
        before = self.progress
        last = _event(self.query.lastProgress)
        if last is None or last.get("timestamp") == before.timestamp:
            return False
        events = [last]
        if int(last.get("batchId", 0)) > before.last_batch + 1:  # missed some between two looks
            events = [one for one in map(_event, self.query.recentProgress) if one is not None]
        for event in events:
            if str(event.get("timestamp") or "") > (before.timestamp or ""):
                self.progress = self.progress.and_then(event)
        return self.progress is not before

    @property
    def busy(self) -> bool:
        return self.query.isActive and bool(self.query.status["isTriggerActive"])

    @property
    def failed(self) -> bool:
        return not self.query.isActive and self.query.exception() is not None

    def stop(self) -> None:
        if self.query.isActive:
            self.query.stop()

    def raise_failure(self) -> None:
        failure = self.query.exception()
        if failure is not None:
            raise PipelineError(f"{self.progress.name} failed: {explain(failure)}") from failure


def _event(progress: Any) -> dict[str, Any] | None:  # noqa: ANN401 - Spark's object, or a dict
    if progress is None:
        return None
    event: dict[str, Any] = json.loads(progress.json)
    return event
