"""Runs a user's pipeline, or only looks whether it would run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from firearrow.base.runtime import SystemClock
from firearrow.client.blocking_admin import Admin
from firearrow.pipeline import outlets
from firearrow.pipeline.errors import explain
from firearrow.pipeline.project import EACH_ITS_OWN, SinkKind, SourceKind
from firearrow.pipeline.report import Outcome, Report, Table
from firearrow.pipeline.stages import build
from firearrow.pipeline.status import State, StatusFile
from firearrow.pipeline.watching import Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from firearrow.pipeline.progress import Progress
    from firearrow.pipeline.project import Project, SinkSpec

RUN: Final = "run"
DRY_RUN: Final = "dry-run"


def check_topics(project: Project) -> list[str]:
    """Every topic that is read must be there; topics that are only written are told about.

    Returns:
        What a user may want to know: topics that a broker would have to make by itself.
    """
    read = [
        (topic, source.options.get("nameservers", project.nameservers), source.part)
        for source in project.sources
        if source.kind == SourceKind.TOPIC
        for topic in source.target
    ]
    written = [
        (sink.target, sink.options.get("nameservers", project.nameservers), sink.part)
        for sink in project.sinks
        if sink.kind == SinkKind.TOPIC and sink.target != EACH_ITS_OWN
    ]
    notes: list[str] = []
    there: dict[str, set[str]] = {}
    for topic, servers, part in (*read, *written):
        if servers is None:
            raise part.wrong("nameservers is missing: at the top of the file, or in options")
        if servers not in there:
            with Admin(nameservers=servers) as admin:
                there[servers] = set(admin.topics(include_system=True))
        if topic not in there[servers]:
            if (topic, servers, part) in read:
                names = ", ".join(sorted(there[servers])[:10]) or "none"
                raise part.wrong(f"there is no topic {topic!r} on {servers}; there are: {names}")
            notes.append(f"topic {topic} is not there yet; the broker makes it if it may")
    return notes


def prepare(
    spark: SparkSession, project: Project
) -> tuple[dict[str, DataFrame], list[tuple[SinkSpec, DataFrame]]]:
    """Everything built and checked, and nothing started."""
    frames = build(spark, project)
    sinks = [
        (sink, outlets.check(spark, project, sink, frames[sink.origin])) for sink in project.sinks
    ]
    return frames, sinks


def dry_run(spark: SparkSession, project: Project, watch: Watch | None = None) -> Report:
    """Resolve everything, and show schema and plan; nothing is written."""
    del watch
    notes = check_topics(project)
    frames, sinks = prepare(spark, project)
    schemas = [
        (name, _kind(frame), field.name, field.dataType.simpleString())
        for name, frame in frames.items()
        for field in frame.schema.fields
    ]
    targets = [
        (sink.name, sink.kind.value, sink.target, sink.origin, ", ".join(frame.columns))
        for sink, frame in sinks
    ]
    return Report(
        DRY_RUN,
        facts={
            "pipeline": project.name,
            "trigger": "available-now" if project.every_ms is None else f"{project.every_ms} ms",
            "checkpoint": str(project.checkpoint),
            **({"notes": notes} if notes else {}),
        },
        tables=[
            Table("columns", ("of", "kind", "column", "type"), schemas),
            Table("sinks", ("sink", "kind", "target", "from", "columns"), targets),
            *(_plan(sink.name, frame) for sink, frame in sinks),
        ],
    )


def _kind(frame: DataFrame) -> str:
    return "stream" if frame.isStreaming else "table"


def _plan(name: str, frame: DataFrame) -> Table:
    execution = frame._jdf.queryExecution()  # noqa: SLF001 - `explain` only prints, and no streams
    plan = execution.analyzed() if frame.isStreaming else execution.optimizedPlan()
    lines = [(line,) for line in str(plan.toString()).splitlines() if line.strip()]
    return Table(f"plan of {name}", ("plan",), lines)


def run(spark: SparkSession, project: Project, watch: Watch | None = None) -> Report:
    """Run until there is nothing left to do, or until told to stop."""
    watch = watch or Watch()
    status = StatusFile(project.state_folder, project.name, SystemClock().now_ms)
    watch.on_progress(status.progress)
    try:
        notes = check_topics(project)
        _, sinks = prepare(spark, project)
        _write_tables(spark, project, sinks, watch, status)
        progress = _run_streams(spark, project, sinks, watch)
    except BaseException as error:
        for query in spark.streams.active:
            if (query.name or "").startswith(f"{project.name}."):
                query.stop()
        stopped = watch.stopping
        status.end(State.STOPPED if stopped else State.FAILED, None if stopped else explain(error))
        raise
    outcome = Outcome.FINISHED
    if watch.stopping:
        outcome = Outcome.STOPPED if project.every_ms is None else Outcome.ENDED
    status.end(State.FINISHED if outcome == Outcome.FINISHED else State.STOPPED)
    return _report(project, outcome, progress, notes)


def _run_streams(
    spark: SparkSession,
    project: Project,
    sinks: list[tuple[SinkSpec, DataFrame]],
    watch: Watch,
) -> list[Progress]:
    """All at once if they have no end; otherwise only as many as the machine has room for."""
    starts = [
        partial(outlets.start, spark, project, sink, frame, watch.say)
        for sink, frame in sinks
        if frame.isStreaming
    ]
    together = len(starts)
    if project.every_ms is None:  # a stream has a process for its source, and one for each task
        together = max(1, spark.sparkContext.defaultParallelism // 2)
    progress: list[Progress] = []
    while starts and not watch.stopping:
        now, starts = starts[:together], starts[together:]
        progress += watch.follow(*[watch.started(start) for start in now])
    return progress


def _write_tables(
    spark: SparkSession,
    project: Project,
    sinks: list[tuple[SinkSpec, DataFrame]],
    watch: Watch,
    status: StatusFile,
) -> None:
    for sink, frame in sinks:
        if not frame.isStreaming:
            with watch.batch(spark, f"writing {sink.name}"):
                outlets.write_once(project, sink, frame, watch.say)
            status.table(sink.name)


def _report(
    project: Project, outcome: Outcome, progress: list[Progress], notes: list[str]
) -> Report:
    rows = [
        (one.name, one.batches, one.rows, one.dropped_late, one.state_rows, one.lag_total)
        for one in progress
    ]
    return Report(
        RUN,
        outcome,
        facts={"pipeline": project.name, **({"notes": notes} if notes else {})},
        tables=[Table("streams", ("stream", "batches", "rows", "late", "state", "behind"), rows)]
        if rows
        else [],
    )
