"""From a project to Spark's tables: sources are opened, steps applied. Nothing is written here."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from firearrow.base.errors import ConfigError
from firearrow.pipeline.errors import explain
from firearrow.pipeline.project import Body, SourceKind
from firearrow.pipeline.topics import time_ms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from pyspark.sql import DataFrame, SparkSession

    from firearrow.pipeline.project import Project, SourceSpec, StepSpec, Watermark
    from firearrow.pipeline.project_yaml import Part

# Columns of a message that stay beside those of its JSON body, under names that no body has.
MESSAGE_COLUMNS: Final = {
    "topic": "_topic",
    "queueId": "_queueId",
    "offset": "_offset",
    "msgId": "_msgId",
    "keys": "_keys",
    "tags": "_tags",
    "storeTimestamp": "_stored",
    "properties": "_properties",
}


def build(spark: SparkSession, project: Project) -> dict[str, DataFrame]:
    """Every source and step by its name, each also a view that later steps can query."""
    frames: dict[str, DataFrame] = {}
    for source in project.sources:
        with _placed(source.part):
            frames[source.name] = _source(spark, project, source)
            frames[source.name].createOrReplaceTempView(source.name)
    for step in project.steps:
        with _placed(step.part):
            frames[step.name] = _step(spark, project.folder, step, frames)
            frames[step.name].createOrReplaceTempView(step.name)
    return frames


@contextmanager
def _placed(part: Part) -> Iterator[None]:
    """Errors of Spark's get the line of the file that they come from."""
    try:
        yield
    except Exception as error:
        raise part.wrong(explain(error)) from error


# --- sources ------------------------------------------------------------------------------------


def _source(spark: SparkSession, project: Project, source: SourceSpec) -> DataFrame:
    if source.kind == SourceKind.TOPIC:
        frame = _decoded(_topic(spark, project, source), source)
    else:
        frame = _directory(spark, project.folder, source)
    return _watermarked(frame, source.watermark)


def _topic(spark: SparkSession, project: Project, source: SourceSpec) -> DataFrame:
    options = dict(source.options)
    servers = options.pop("nameservers", project.nameservers)
    if servers is None:
        raise ConfigError("nameservers is missing: at the top of the file, or in these options")
    place = source.starting
    if place in {"earliest", "latest"} or place.startswith("{"):
        options.setdefault("startingOffsets", place)
    else:
        options.setdefault("startingTimestamp", str(time_ms(place, "starting")))
    options |= {"nameservers": servers, "subscribe": ",".join(source.target)}
    if source.stream:
        return spark.readStream.format("rocketmq").options(**options).load()
    return spark.read.format("rocketmq").options(**options).load()


def _directory(spark: SparkSession, folder: Path, source: SourceSpec) -> DataFrame:
    paths = [path_of(folder, one) for one in source.target]
    if source.kind == SourceKind.COMMITLOG:
        options = {"path": ",".join(paths), **source.options}
        reader = spark.readStream if source.stream else spark.read
        return reader.format("commitlog").options(**options).load()
    files = spark.read.options(**source.options)
    table = (files.schema(source.schema) if source.schema else files).parquet(*paths)
    if not source.stream:
        return table
    if len(paths) != 1:
        raise ConfigError("a stream of files has one directory")
    # A stream must be told its columns; the files that are there know them.
    return spark.readStream.options(**source.options).schema(table.schema).parquet(paths[0])


def path_of(folder: Path, text: str) -> str:
    """Relative to the project's file, unless it names a file system or begins at the root."""
    return text if "://" in text or text.startswith("/") else str((folder / text).resolve())


def _decoded(frame: DataFrame, source: SourceSpec) -> DataFrame:
    """Bodies as the project wants to see them."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only who runs a job pays

    if source.body == Body.BINARY:
        return frame
    text = f.col("body").cast("string")
    if source.body == Body.TEXT:
        return frame.withColumn("body", text)
    assert source.schema is not None
    # Bodies that are no JSON of this shape are kept, for whoever wants to look at them.
    parsed = f.from_json(text, source.schema, {"columnNameOfCorruptRecord": "_corrupt"})
    kept = [f.col(name).alias(alias) for name, alias in MESSAGE_COLUMNS.items()]
    return frame.withColumn("_json", parsed).select("_json.*", *kept, text.alias("_body"))


def _watermarked(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None or not frame.isStreaming:
        return frame
    if watermark.column not in frame.columns:
        raise ConfigError(
            f"watermark: there is no column {watermark.column!r}; "
            f"there are {', '.join(frame.columns)}"
        )
    return frame.withWatermark(watermark.column, watermark.delay)


# --- steps --------------------------------------------------------------------------------------


def _step(
    spark: SparkSession, folder: Path, step: StepSpec, frames: dict[str, DataFrame]
) -> DataFrame:
    if step.sql is not None:
        frame = spark.sql(step.sql)
    else:
        frame = _called(step, folder, [frames[name] for name in step.inputs])
    return _watermarked(frame, step.watermark)


def _called(step: StepSpec, folder: Path, inputs: list[DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame as Frame  # noqa: PLC0415 - only who runs a job pays

    assert step.python is not None
    file, _, name = step.python.partition(":")
    module = _module(folder / file)
    function = getattr(module, name, None)
    if not callable(function):
        known = [one for one in vars(module) if not one.startswith("_")]
        raise ConfigError(f"{file} has no function {name!r}; it has {', '.join(known)}")
    made: Any = function(*inputs)
    if not isinstance(made, Frame):
        raise ConfigError(f"{step.python} returned {type(made).__name__}, a DataFrame expected")
    return made


def _module(path: Path) -> ModuleType:
    """A file of the project, loaded; its functions travel to executors by value."""
    from pyspark import cloudpickle  # noqa: PLC0415

    if not path.is_file():
        raise ConfigError(f"{path} is not there")
    name = f"firearrow_project_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
