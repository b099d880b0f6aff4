"""The commands of `firearrow pipeline`, as far as they go without Spark."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from firearrow.cli.root import app
from firearrow.pipeline.packaging import package

if TYPE_CHECKING:
    from pathlib import Path

PIPELINE = "firearrow pipeline"


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    given = {"NAMESRV_ADDR": "", **environment}
    result = CliRunner().invoke(app, ["pipeline", *arguments], env=given)
    return result.exit_code, result.output


def test_other_commands_do_not_import_spark() -> None:
    heavy = ["pyspark", "pyarrow", "pandas", "matplotlib", "yaml"]
    code = f"import sys, firearrow.cli.commands; print([m for m in {heavy} if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


def test_without_the_extra_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = importlib.util.find_spec

    def without(name: str, *more: Any) -> Any:
        return None if name == "pyspark" else whole(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    told = (
        f"{PIPELINE} archive: pyspark not installed; install it: pip install 'firearrow[spark]'\n"
    )
    assert run("archive", "t", "--topic", "x") == (2, told)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["archive", "t", "--topic", "x"],
            "--nameservers is missing: give it, or set NAMESRV_ADDR",
        ),
        (["archive", "t", "-n", "x:1"], "topics or a pattern for them expected"),
        (["archive", "t", "-n", "x:1", "-t", "a", "--every", "1y"], "--every '1y': a time such as"),
        (["archive", "t", "-n", "x:1", "-t", "a", "--conf", "x"], "--conf 'x': spark.some.setting"),
        (["replay", "s", "-n", "x:1"], "a table or topics to replay expected"),
        (["replay", "s", "-n", "x:1", "-t", "a", "--rate", "1", "--speed", "2"], "one of the two"),
        (["replay", "s", "-n", "x:1", "-t", "a", "--from", "noon"], "--from 'noon': earliest"),
        (["replay", "s", "-n", "x:1", "-t", "a", "--rate", "0"], "--rate 0.0: more than nothing"),
        (["metrics", "t", "-n", "x:1", "-t", "a", "--window", "soon"], "--window 'soon': a time"),
        (["run", "nowhere"], "nowhere cannot be read: No such file or directory"),
        (["dry-run", "nowhere"], "firearrow pipeline init writes one"),
        (["status", "nowhere"], "nowhere cannot be read"),
        (["package", "x.zip"], "x.zip: a name that ends with .tar.gz expected"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], error: str) -> None:
    code, told = run(*arguments)
    assert code == 2
    assert told.startswith(f"{PIPELINE} {arguments[0]}: ")
    assert error in told
    assert "Traceback" not in told


def test_a_project_is_written_once(tmp_path: Path) -> None:
    folder = tmp_path / "my shop"
    assert run("init", str(folder))[0] == 0
    assert "name: my-shop\n" in (folder / "pipeline.yaml").read_text("utf-8")
    code, told = run("init", str(folder))
    assert code == 2
    assert "is there already; nothing was written" in told
    code, told = run("status", str(folder))
    assert code == 2
    assert "has not been run yet" in told


def test_a_package_has_what_executors_need_and_no_sources_of_compiled_code(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("X = 1\n")
    program = package(tmp_path / "out" / "firearrow.tar.gz", [mine])
    assert "from firearrow.cli.main import run" in program.read_text("utf-8")
    with tarfile.open(tmp_path / "out" / "firearrow.tar.gz") as archive:
        names = set(archive.getnames())
    needed = {"firearrow/spark/source.py", "pyspark_rocketmq/__init__.py", "mine.py"}
    assert needed | {"msgspec/__init__.py"} <= names
    assert not [name for name in names if name.endswith((".pyx", ".c", ".pyc"))]
