"""A user's pipeline as it stands in its project file: sources, steps, sinks. Pure.

docs/guides/pipelines.md has the whole file with every key. Reading it checks everything that can be
known without Spark or a broker; `stages.py` builds the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from firearrow.base.config import nearest
from firearrow.base.errors import ConfigError
from firearrow.pipeline.project_yaml import Part, parse
from firearrow.pipeline.topics import duration_ms

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROJECT_FILE: Final = "pipeline.yaml"
EACH_ITS_OWN: Final = "*"  # a sink's topic: each row goes where its column `topic` says
_NAME: Final = re.compile(r"^[A-Za-z_]\w*$")
_PYTHON: Final = re.compile(r"^[\w./-]+\.py:[A-Za-z_]\w*$")


class SourceKind(StrEnum):
    TOPIC = "topic"
    PARQUET = "parquet"
    COMMITLOG = "commitlog"


class SinkKind(StrEnum):
    TOPIC = "topic"
    PARQUET = "parquet"
    DELTA = "delta"
    JDBC = "jdbc"
    CONSOLE = "console"


class Body(StrEnum):
    """How bodies of messages are read."""

    BINARY = "binary"
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where rows come from. `target` is a topic (or several), or a directory."""

    name: str
    kind: SourceKind
    target: tuple[str, ...]
    part: Part
    stream: bool = True
    starting: str = "earliest"
    body: Body = Body.BINARY
    schema: str | None = None
    watermark: Watermark | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepSpec:
    """What is done with rows: a query over what was named before, or a function."""

    name: str
    part: Part
    sql: str | None = None
    python: str | None = None
    inputs: tuple[str, ...] = ()
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """Where rows go. `target` is a topic, a directory or a JDBC address."""

    name: str
    kind: SinkKind
    origin: str
    target: str
    part: Part
    mode: str = "append"
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Project:
    """The whole file."""

    name: str
    folder: Path
    nameservers: str | None
    every_ms: int | None  # None: end with what is there now
    checkpoint: Path
    master: str | None
    conf: Mapping[str, str]
    sources: tuple[SourceSpec, ...]
    steps: tuple[StepSpec, ...]
    sinks: tuple[SinkSpec, ...]

    @property
    def state_folder(self) -> Path:
        """Where a run leaves word of itself."""
        return self.folder / ".firearrow"


def load_project(path: Path, environ: Mapping[str, str] | None = None) -> Project:
    """Read and check a project; `path` is its file, or the folder that has it."""
    file = path / PROJECT_FILE if path.is_dir() else path
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}; firearrow pipeline init writes one"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text") from error
    return project_of(parse(text, file.name, environ), file.parent)


_TOP: Final = (
    "name",
    "nameservers",
    "trigger",
    "checkpoint",
    "spark",
    "sources",
    "steps",
    "sinks",
)


def project_of(whole: Part, folder: Path) -> Project:
    """A parsed file as a project."""
    top = whole.mapping(_TOP)
    for needed in ("name", "sources", "sinks"):
        if needed not in top:
            raise whole.wrong(f"{needed} is missing")
    spark = top["spark"].mapping(("master", "conf")) if "spark" in top else {}
    sources = tuple(_source(name, part) for name, part in _named(top["sources"]))
    steps = tuple(_step(name, part) for name, part in _named(top.get("steps")))
    sinks = tuple(_sink(name, part) for name, part in _named(top["sinks"]))
    if not sources or not sinks:
        raise whole.wrong("at least one source and one sink expected")
    project = Project(
        name=top["name"].text(),
        folder=folder,
        nameservers=top["nameservers"].text() if "nameservers" in top else None,
        every_ms=_trigger(top.get("trigger")),
        checkpoint=folder
        / (top["checkpoint"].text() if "checkpoint" in top else ".firearrow/checkpoint"),
        master=spark["master"].text() if "master" in spark else None,
        conf=spark["conf"].settings() if "conf" in spark else {},
        sources=sources,
        steps=steps,
        sinks=sinks,
    )
    _check_names(project)
    return project


def _named(part: Part | None) -> list[tuple[str, Part]]:
    """A section: names that SQL can use, each with what it stands for."""
    if part is None or part.value is None:
        return []
    for name, entry in part.mapping().items():
        if not _NAME.match(name):
            raise entry.wrong(f"{name!r} cannot be used in SQL: letters, digits and _ only")
    return list(part.mapping().items())


def _trigger(part: Part | None) -> int | None:
    if part is None or part.value == "available-now":
        return None
    if isinstance(part.value, dict):
        every = part.mapping(("every",))
        if "every" in every:
            return _duration(every["every"])
    raise part.wrong("available-now, or every: 10s expected")


def _duration(part: Part) -> int:
    try:
        return duration_ms(part.text(), "")
    except ConfigError:
        raise part.wrong(f"{part.text()!r}: a time such as 500ms, 10s or 5m expected") from None


# --- sources ------------------------------------------------------------------------------------

_SOURCE_KEYS: Final = (
    *SourceKind,
    "stream",
    "starting",
    "body",
    "schema",
    "watermark",
    "options",
)


def _source(name: str, part: Part) -> SourceSpec:
    keys = part.mapping(_SOURCE_KEYS)
    kind = SourceKind(_the_kind(part, keys, SourceKind))
    body = Body(keys["body"].one_of(Body)) if "body" in keys else Body.BINARY
    schema = keys["schema"].text() if "schema" in keys else None
    stream = keys["stream"].flag() if "stream" in keys else kind == SourceKind.TOPIC
    if kind != SourceKind.TOPIC:
        for only in ("starting", "body"):
            if only in keys:
                raise keys[only].wrong("only a topic has this")
    if body == Body.JSON and schema is None:
        raise part.wrong("body: json needs a schema, such as schema: id bigint, amount double")
    if kind == SourceKind.TOPIC and schema is not None and body != Body.JSON:
        raise keys["schema"].wrong("a topic has a schema only with body: json")
    return SourceSpec(
        name=name,
        kind=kind,
        target=keys[kind].texts(),
        part=part,
        stream=stream,
        starting=keys["starting"].text() if "starting" in keys else "earliest",
        body=body,
        schema=schema,
        watermark=_watermark(keys.get("watermark")),
        options=keys["options"].settings() if "options" in keys else {},
    )


def _the_kind(part: Part, keys: Mapping[str, Part], kinds: type[StrEnum]) -> str:
    """The one key that says what a source or sink is."""
    given = [kind.value for kind in kinds if kind.value in keys]
    if len(given) != 1:
        names = ", ".join(kind.value for kind in kinds)
        found = f" (found: {', '.join(given)})" if given else ""
        raise part.wrong(f"exactly one of {names} expected{found}")
    return given[0]


def _watermark(part: Part | None) -> Watermark | None:
    if part is None:
        return None
    keys = part.mapping(("column", "delay"))
    for needed in ("column", "delay"):
        if needed not in keys:
            raise part.wrong(f"{needed} is missing: watermark: {{column: at, delay: 10 minutes}}")
    return Watermark(keys["column"].text(), keys["delay"].text())


# --- steps --------------------------------------------------------------------------------------


def _step(name: str, part: Part) -> StepSpec:
    keys = part.mapping(("sql", "python", "inputs", "watermark"))
    if ("sql" in keys) == ("python" in keys):
        raise part.wrong("exactly one of sql and python expected")
    python = keys["python"].text() if "python" in keys else None
    if python is not None and not _PYTHON.match(python):
        raise keys["python"].wrong(f"{python!r}: file.py:function expected")
    if python is not None and "inputs" not in keys:
        raise part.wrong("inputs is missing: which rows the function gets, by name")
    if python is None and "inputs" in keys:
        raise keys["inputs"].wrong("SQL names its inputs itself")
    return StepSpec(
        name=name,
        part=part,
        sql=keys["sql"].text() if "sql" in keys else None,
        python=python,
        inputs=keys["inputs"].texts() if "inputs" in keys else (),
        watermark=_watermark(keys.get("watermark")),
    )


# --- sinks --------------------------------------------------------------------------------------

_SINK_KEYS: Final = (*SinkKind, "from", "mode", "partition_by", "options")
_MODES: Final = ("append", "update", "complete", "overwrite")


def _sink(name: str, part: Part) -> SinkSpec:
    keys = part.mapping(_SINK_KEYS)
    kind = SinkKind(_the_kind(part, keys, SinkKind))
    if "from" not in keys:
        raise part.wrong("from is missing: the source or step whose rows go here")
    options = keys["options"].settings() if "options" in keys else {}
    if kind == SinkKind.JDBC and "dbtable" not in options:
        raise part.wrong("jdbc needs options: {dbtable: the table's name}")
    if "partition_by" in keys and kind not in {SinkKind.PARQUET, SinkKind.DELTA}:
        raise keys["partition_by"].wrong("only parquet and delta have partitions")
    mode = keys["mode"].one_of(_MODES) if "mode" in keys else "append"
    if kind in {SinkKind.PARQUET, SinkKind.TOPIC, SinkKind.DELTA} and mode in {
        "update",
        "complete",
    }:
        raise keys["mode"].wrong(
            f"{kind} only grows: mode append (aggregate over windows with a watermark)"
        )
    return SinkSpec(
        name=name,
        kind=kind,
        origin=keys["from"].text(),
        target="" if kind == SinkKind.CONSOLE else keys[kind].text(),
        part=part,
        mode=mode,
        partition_by=keys["partition_by"].texts() if "partition_by" in keys else (),
        options=options,
    )


def _check_names(project: Project) -> None:
    """Every name once, and nothing that is used before it is there."""
    known: list[str] = []
    entries: list[SourceSpec | StepSpec] = [*project.sources, *project.steps]
    for entry in entries:
        if entry.name in known:
            raise entry.part.wrong(f"{entry.name} is there already")
        if isinstance(entry, StepSpec):
            for used in entry.inputs:
                _known(entry.part, used, known)
        known.append(entry.name)
    for sink in project.sinks:
        _known(sink.part, sink.origin, known)


def _known(part: Part, name: str, known: list[str]) -> None:
    if name not in known:
        hint = nearest(name, known) or f"; known: {', '.join(known)}"
        raise part.wrong(f"there is no {name!r} before this place{hint}")
