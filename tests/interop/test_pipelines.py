"""Jobs in processes of their own: killed, stopped, on a cluster, submitted, declared; the demo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as parquet
import pytest

from firearrow import ConsumeFromWhere, Message, Producer, PullConsumer

from .processes import Bench, PeerProcess, wait_until
from .sparks import (
    PATIENCE_S,
    SPARK_HOME,
    StandaloneCluster,
    kill_all,
    report_of,
    start_job,
)

if TYPE_CHECKING:
    from firearrow.testing import LocalCluster

ROOT: Final = Path(__file__).parent.parent.parent
MESSAGES: Final = 4_000
PYTHON_BY_NAME: Final = "python-of-this-machine"  # has FireArrow on the driver only


def send(nameservers: str, numbers: range, topic: str = "orders") -> None:
    with Producer("shop", nameservers=nameservers) as producer:
        for soon in [
            producer.send_soon(Message(topic, f"order {number}", keys=f"k{number % 9}"))
            for number in numbers
        ]:
            assert soon.result().ok


def numbers_in(table: Path) -> list[int]:
    """What a reader finds who has never heard of Spark."""
    found = parquet.dataset(table, format="parquet", partitioning="hive").to_table()
    return sorted(int(body.decode().split()[1]) for body in found["body"].to_pylist())


def batches_in(table: Path) -> int:
    return len(list(table.glob("_batches/*/*.json")))


def texts_in(nameservers: str, topic: str, count: int) -> list[str]:
    texts: list[str] = []
    with PullConsumer(
        "reader",
        nameservers=nameservers,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as reader:
        reader.subscribe(topic)
        while len(texts) < count:
            got = reader.poll(30_000)
            assert got, f"{len(texts)} of {count} messages came"
            texts += [message.text for message in got]
        texts += [message.text for message in reader.poll(500)]
    return texts


def wait_for_a_batch(table: Path, before: int, job: PeerProcess) -> None:
    wait_until(
        lambda: batches_in(table) > before or job.exit_code is not None,
        timeout_s=PATIENCE_S,
        what=job.tail,
    )


# --- killed and stopped -------------------------------------------------------------------------


def test_an_archive_that_is_killed_again_and_again_has_every_message_once(
    bench: Bench, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    send(rocketmq.nameservers, range(MESSAGES))
    asked = ["archive", str(table), "--topic", "orders", "--batch", "300"]
    for _ in range(3):
        before = batches_in(table)
        job = start_job(bench, asked, nameservers=rocketmq.nameservers)
        # Killed at a moment that nobody chose: somewhere after the first batch of this run.
        wait_for_a_batch(table, before, job)
        kill_all(job)
    last = start_job(bench, asked, nameservers=rocketmq.nameservers)
    assert last.wait_for_exit(timeout_s=PATIENCE_S) == 0, last.tail()
    assert numbers_in(table) == list(range(MESSAGES))
    assert report_of(last)["facts"]["resumed"]


def test_a_job_that_is_told_to_stop_ends_cleanly_and_says_so(
    bench: Bench, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    send(rocketmq.nameservers, range(100))
    table = tmp_path / "table"
    asked = ["archive", str(table), "--topic", "orders", "--follow", "--every", "500ms"]
    job = start_job(bench, asked, nameservers=rocketmq.nameservers)
    wait_until(lambda: batches_in(table) > 0, timeout_s=PATIENCE_S, what=job.tail)
    send(rocketmq.nameservers, range(100, 120))
    wait_until(lambda: batches_in(table) > 1, timeout_s=PATIENCE_S, what=job.tail)
    job.terminate()
    assert job.wait_for_exit(timeout_s=PATIENCE_S) == 0, job.tail()
    assert report_of(job)["outcome"] == "ended"
    assert numbers_in(table) == list(range(120))


# --- clusters -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def standalone(
    bench: Bench, bare_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> StandaloneCluster:
    tools = tmp_path_factory.mktemp("on-workers")
    write_program(tools / PYTHON_BY_NAME, bare_python)
    return StandaloneCluster(bench, tools)


def write_program(path: Path, python: Path) -> None:
    """A Python under another name; a link would lose its packages."""
    path.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n', "utf-8")
    path.chmod(0o755)


def test_a_users_pipeline_runs_on_a_standalone_cluster(
    bench: Bench, rocketmq: LocalCluster, standalone: StandaloneCluster, tmp_path: Path
) -> None:
    project = Path(shutil.copytree(ROOT / "examples/pipelines/clicks", tmp_path / "clicks"))
    environment = os.environ | {"NAMESRV_ADDR": rocketmq.nameservers}
    subprocess.run([sys.executable, str(project / "produce.py")], env=environment, check=True)
    job = start_job(
        bench,
        ["run", str(project)],
        nameservers=rocketmq.nameservers,
        options=standalone.options(),
    )
    assert job.wait_for_exit(timeout_s=PATIENCE_S) == 0, job.tail()
    found = parquet.dataset(project / "out/sessions", format="parquet").to_table()
    assert sorted(found["user"].to_pylist()) == ["ann", "ben", "ben", "cem"]
    status = subprocess.run(
        [Path(sys.executable).with_name("firearrow"), "pipeline", "status", project, "--json"],
        env=environment,
        check=True,
        capture_output=True,
    )
    assert json.loads(status.stdout)["state"] == "finished"


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with pyarrow, and without any trace of FireArrow."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "pyarrow").symlink_to(Path(pa.__file__).parent)
    python = folder / "bin" / "python"
    missing = "import pyarrow, importlib.util as u; print(u.find_spec('firearrow'))"
    told = subprocess.run([python, "-c", missing], capture_output=True, text=True, check=True)
    assert told.stdout == "None\n"
    return python


def test_executors_without_firearrow_get_it_from_the_package(
    bench: Bench,
    rocketmq: LocalCluster,
    standalone: StandaloneCluster,
    tmp_path: Path,
) -> None:
    tools = tmp_path / "on-the-driver"
    tools.mkdir()
    write_program(tools / PYTHON_BY_NAME, Path(sys.executable))
    send(rocketmq.nameservers, range(200))
    firearrow = Path(sys.executable).with_name("firearrow")
    archive = tmp_path / "firearrow.tar.gz"
    packed = subprocess.run(
        [firearrow, "pipeline", "package", archive], check=True, capture_output=True, text=True
    )
    table = tmp_path / "table"
    submitted = bench.start(
        "spark-submit",
        [
            str(SPARK_HOME / "bin" / "spark-submit"),
            *standalone.options(),
            *("--archives", f"{archive}#packages"),
            *("--conf", "spark.executorEnv.PYTHONPATH=./packages"),
            packed.stdout.strip(),
            *("archive", str(table), "--topic", "orders", "--json"),
        ],
        environment={
            "NAMESRV_ADDR": rocketmq.nameservers,
            "SPARK_HOME": str(SPARK_HOME),
            "PYSPARK_PYTHON": PYTHON_BY_NAME,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
    )
    assert submitted.wait_for_exit(timeout_s=PATIENCE_S) == 0, submitted.tail()
    assert report_of(submitted)["facts"]["rowsWritten"] == 200
    assert numbers_in(table) == list(range(200))


# --- declarative pipelines ----------------------------------------------------------------------

SPEC: Final = """
name: declared
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""
TRANSFORMATIONS: Final = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()


@dp.table
def bronze():
    source = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    return source.options(nameservers="{servers}", subscribe="orders").load()


@dp.materialized_view
def by_key():
    return spark.read.table("bronze").groupBy("keys").agg(f.count("*").alias("n"))


dp.create_sink(
    name="copies",
    format="rocketmq",
    options={{"nameservers": "{servers}", "topic": "copies", "group": "declared"}},
)


@dp.append_flow(target="copies", name="to_copies")
def to_copies():
    return spark.readStream.table("bronze").select("keys", "body")
"""


def test_source_and_sink_work_in_a_declarative_pipeline(
    bench: Bench, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path), "utf-8")
    text = TRANSFORMATIONS.format(servers=rocketmq.nameservers)
    (tmp_path / "transformations" / "orders.py").write_text(text, "utf-8")
    for numbers in (range(60), range(60, 90)):  # the second run reads what is new
        send(rocketmq.nameservers, numbers)
        job = bench.start(
            "spark-pipelines",
            [
                str(Path(sys.executable).with_name("firearrow")),
                *("pipeline", "run", str(tmp_path), "--master", "local[2]"),
                *("--conf", "spark.driver.memory=768m"),
                *("--conf", "spark.sql.shuffle.partitions=2"),
            ],
        )
        assert job.wait_for_exit(timeout_s=PATIENCE_S) == 0, job.tail()
    copied = sorted(texts_in(rocketmq.nameservers, "copies", 90))
    assert copied == sorted(f"order {number}" for number in range(90))


# --- the demo -----------------------------------------------------------------------------------


@pytest.mark.parametrize("java", ["of-the-machine", "none"])
def test_the_demo_tells_the_whole_story(tmp_path: Path, java: str) -> None:
    environment = os.environ | {"PYTHONUTF8": "1", "COLUMNS": "100"}
    if java == "none":  # a PATH with a shell and its tools, and no Java
        tools = tmp_path / "bin"
        tools.mkdir()
        for folder in ("/bin", "/usr/bin"):
            for found in Path(folder).iterdir():
                if found.name != "java" and not os.path.lexists(tools / found.name):
                    (tools / found.name).symlink_to(found)
        environment["PATH"] = str(tools)
        environment.pop("JAVA_HOME", None)
        assert shutil.which("java", path=environment["PATH"]) is None
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "2,006 rows, read once more with pyarrow alone" in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("Done in ")
