"""The sink `rocketmq`: what Spark calls in tasks and in the driver.

    driver   batch_writer, stream_writer   check options, columns, topic; make the decision topic
    task     write                         batches, or half messages that nobody sees yet
    driver   commit                        `settling.py`: decide once, then deliver
             abort                         nothing is delivered; the next commit sweeps it away

In a stream the object that commits is not the one that wrote: all that it knows comes with the
messages of the tasks. `commit` may be called again for a batch after a crash.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from firearrow.client.portal import portal
from firearrow.model import message as names
from firearrow.spark.decision_log import DecisionLog
from firearrow.spark.errors import ConnectorError, OptionError
from firearrow.spark.rows import plan_of
from firearrow.spark.settling import Attempt, Settling
from firearrow.spark.sink_cluster import SinkCluster
from firearrow.spark.task import Task
from firearrow.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from firearrow.spark.decisions import Decision
    from firearrow.spark.options import ConnectionOptions
    from firearrow.spark.rows import Plan

log = logging.getLogger(__name__)

# --- what a process keeps ---------------------------------------------------------------------

_guard = threading.Lock()
_clusters: dict[ConnectionOptions, SinkCluster] = {}
_logs: dict[tuple[ConnectionOptions, str], DecisionLog] = {}


def _cluster(options: WriteOptions) -> SinkCluster:
    with _guard:
        found = _clusters.get(options.connection)
        if found is None:
            found = _clusters[options.connection] = SinkCluster(options.connection)
        return found


def _log(options: WriteOptions) -> DecisionLog:
    cluster = _cluster(options)
    with _guard:
        key = options.connection, options.decision_topic
        if key not in _logs:
            _logs[key] = DecisionLog(cluster, options)
        return _logs[key]


def close_all() -> None:
    """Hang up; for the end of a process, and for tests."""
    with _guard:
        clusters = list(_clusters.values())
        _clusters.clear()
        _logs.clear()
    for cluster in clusters:
        portal.call(cluster.close)


def _forget() -> None:
    global _guard  # noqa: PLW0603 - the parent may hold it
    _guard = threading.Lock()
    _clusters.clear()
    _logs.clear()


os.register_at_fork(after_in_child=_forget)

# --- making -----------------------------------------------------------------------------------


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001
    """A writer for `df.write.format("rocketmq").mode("append").save()`."""
    parsed = WriteOptions.parse(options, streaming=False)
    _refuse_overwrite(overwrite=overwrite)
    return BatchWriter(parsed, plan_of(schema, parsed.topic))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001
    """A writer for `df.writeStream.format("rocketmq")`."""
    parsed = WriteOptions.parse(options, streaming=True)
    _refuse_overwrite(overwrite=overwrite)
    plan = plan_of(schema, parsed.topic)
    _check_cluster(parsed)
    return StreamWriter(parsed, plan)


def _refuse_overwrite(*, overwrite: bool) -> None:
    if overwrite:
        raise OptionError(
            "a topic cannot be overwritten or updated: use mode 'append' (outputMode('append')), "
            "or for running totals foreachBatch with a batch write and its option 'jobId'"
        )


def _check_cluster(options: WriteOptions) -> None:
    """Raise before a row is written if it can be seen that it would come to nothing."""
    if options.topic is not None:
        portal.call(_cluster(options).check_topic, options.topic)
    if options.exactly_once:
        portal.call(_log(options).ensure, options.topic)


# --- in tasks ---------------------------------------------------------------------------------


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task tells the driver."""

    scope: str
    partition: int
    attempt: str
    written: list[Any]
    rows: int

    def as_attempt(self) -> Attempt:
        return Attempt(self.partition, self.attempt, self.written)


def _write(
    options: WriteOptions,
    plan: Plan,
    scope: str,
    epoch: str,
    batches: Iterator[pa.RecordBatch],
) -> TaskWritten:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    attempt = f"{0 if context is None else context.taskAttemptId()}-{uuid.uuid4().hex[:8]}"
    own = None
    if options.exactly_once:
        own = {
            names.SCOPE: scope,
            names.EPOCH: epoch,
            "FA_PARTITION": str(partition),
            "FA_ATTEMPT": attempt,
        }
    task = Task(_cluster(options), options, plan, partition, own)
    written = task.write(batches)
    return TaskWritten(scope, partition, attempt, written, task.rows)


def _attempts(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWritten]:
    return [message for message in messages if isinstance(message, TaskWritten)]


# --- writers ----------------------------------------------------------------------------------


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches; the id of the query and of the batch say what is the same."""

    def __init__(self, options: WriteOptions, plan: Plan) -> None:
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        context = TaskContext.get()
        query = batch = None
        if context is not None:
            query = context.getLocalProperty("sql.streaming.queryId")
            batch = context.getLocalProperty("streaming.sql.batchId")
        if self._options.exactly_once and (not query or not batch):
            raise ConnectorError(
                "this task does not know its query and batch, without which nothing can be "
                "written exactly once: use delivery=at-least-once"
            )
        return _write(self._options, self._plan, query or "", batch or "", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        tasks = _attempts(messages)
        if not self._options.exactly_once or not any(task.written for task in tasks):
            return
        settling = Settling(_cluster(self._options), _log(self._options), self._options)
        scope = tasks[0].scope
        portal.call(settling.commit, scope, batchId, [task.as_attempt() for task in tasks])

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],  # noqa: ARG002 - Spark's
        batchId: int,
    ) -> None:
        """Leave everything as it is: a commit that failed may have been decided.

        If it was, the next run delivers it; if not, the next run sweeps its half messages away.
        """
        log.warning("batch %d is not written; the query can be started again", batchId)


class BatchWriter(DataSourceArrowWriter):
    """Writes a table once; the same object is in the driver and in all tasks."""

    def __init__(self, options: WriteOptions, plan: Plan) -> None:
        self._options = options
        self._plan = plan
        self._scope = f"job:{options.job_id or uuid.uuid4().hex}"
        self._is_done = False
        _check_cluster(options)
        if options.job_id is not None:
            self._is_done = portal.call(_log(options).find, self._scope, 0) is not None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        if self._is_done:
            return TaskWritten(self._scope, 0, "", [], 0)
        return _write(self._options, self._plan, self._scope, "0", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        tasks = _attempts(messages)
        if not self._options.exactly_once:
            return
        if self._is_done or (self._options.job_id is not None) or any(t.written for t in tasks):
            portal.call(self._settling().commit, self._scope, 0, [t.as_attempt() for t in tasks])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nobody comes back to a job without a name: have its half messages rolled back.

        One with a name may be run again, and that run sweeps them away.
        """
        if self._options.exactly_once and self._options.job_id is None:
            attempts = [task.as_attempt() for task in _attempts(messages)]
            verdict: Decision = portal.call(self._settling().abort, self._scope, 0, attempts)
            log.warning("the write is not complete: %s", verdict.outcome)

    def _settling(self) -> Settling:
        return Settling(_cluster(self._options), _log(self._options), self._options)
