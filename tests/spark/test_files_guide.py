"""The guide to store files on Spark: its Python prints what it says, its commands work."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.golden import unpack
from typer.testing import CliRunner

import firearrow.spark
from firearrow.cli.root import app
from firearrow.pipeline import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parent.parent.parent / "docs/guides/pipeline-files.md"
PYTHON = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
SHELL = re.compile(r"```bash\n(.*?)```", re.DOTALL)


@pytest.fixture
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Whoever asks for a session gets the one that is there, and cannot stop it."""

    @contextlib.contextmanager
    def opened(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(running, "opened", opened)
    monkeypatch.setattr(firearrow.spark, "session", lambda **_: spark, raising=False)
    return spark


def test_the_python_of_the_guide_prints_what_it_says(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del session
    unpack("clean", tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = PYTHON.findall(GUIDE.read_text("utf-8"))
    assert len(blocks) > 3
    for shown, expected in blocks:
        # The session was started in another directory.
        code = shown.replace('load("store")', f"load({str(tmp_path / 'store')!r})")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(GUIDE), "exec"), names)
        assert printed.getvalue() == expected, code


def test_the_commands_of_the_guide_do_what_it_says(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del session
    unpack("clean", tmp_path)
    monkeypatch.chdir(tmp_path)
    reports = []
    for command in SHELL.findall(GUIDE.read_text("utf-8")):
        name, *arguments = shlex.split(command)
        assert name == "firearrow"
        result = CliRunner().invoke(app, [*arguments, "--quiet"])
        assert result.exit_code == 0, (command, result.output, result.exception)
        reports.append(json.loads(result.stdout))
    audited, counted, rebuilt, traced = reports
    (store,) = audited["tables"]["stores"]
    files = len(list((tmp_path / "store/commitlog").iterdir()))
    assert (store["sound"], store["commitLogFiles"]) == (True, files)
    assert rebuilt["tables"] == counted["tables"]
    assert (counted["facts"]["dryRun"], rebuilt["facts"]["dryRun"]) == (True, False)
    assert traced["facts"]["messages"] == 0  # those who wrote this store did not trace
    assert traced["plots"] == ["latency.html"]
    assert (tmp_path / "latency.html").exists()


def test_a_broken_store_and_a_wrong_path_make_their_exit_codes(
    session: SparkSession, tmp_path: Path
) -> None:
    del session
    root = unpack("clean", tmp_path)
    path = sorted((root / "commitlog").iterdir())[0]
    content = bytearray(path.read_bytes())
    content[88] ^= 1
    path.write_bytes(content)
    found = CliRunner().invoke(app, ["pipeline", "audit", str(root), "--json", "-q"])
    assert found.exit_code == 1
    codes = {finding["code"] for finding in json.loads(found.stdout)["tables"]["findings"]}
    assert codes == {"C3"}
    wrong = CliRunner().invoke(app, ["pipeline", "rebuild", str(tmp_path / "nowhere"), "-q"])
    assert wrong.exit_code == 2
    assert "is not a store directory" in wrong.stderr
    neither = CliRunner().invoke(app, ["pipeline", "trace", "-q"])
    assert neither.exit_code == 2
    assert "one of the two" in neither.stderr
