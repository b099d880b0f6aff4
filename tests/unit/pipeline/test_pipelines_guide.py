"""The guide to pipelines and the format of the status file say what is so."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow.base.errors import ConfigError
from firearrow.pipeline.progress import Progress
from firearrow.pipeline.project import SinkKind, SourceKind, load_project
from firearrow.pipeline.status import EVERY_MS, StatusFile, read_status

ROOT = Path(__file__).parent.parent.parent.parent
GUIDE = (ROOT / "docs/guides/pipelines.md").read_text("utf-8")
FORMAT = (ROOT / "docs/formats/pipeline-status.md").read_text("utf-8")


def test_the_project_of_the_guide_is_one_and_shows_every_kind(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "pipeline.yaml").write_text(text, "utf-8")
    project = load_project(tmp_path, {})
    assert {source.kind for source in project.sources} == set(SourceKind)
    assert {sink.kind for sink in project.sinks} == set(SinkKind) - {SinkKind.DELTA}


def test_the_commands_of_the_guide_print_what_it_says(tmp_path: Path) -> None:
    ((command, printed),) = re.findall(r"```bash\n(.*?)```\n\n```text\n(.*?)```", GUIDE, re.DOTALL)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
    }
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == (printed, "")


def test_the_mistake_of_the_guide_is_told_in_those_words(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    (told,) = re.findall(r"```text\npipeline\.yaml, line \d+, (.*?)\n```", GUIDE)
    (tmp_path / "pipeline.yaml").write_text(text.replace("starting:", "startin:"), "utf-8")
    with pytest.raises(ConfigError, match=f"{re.escape(told)}$"):
        load_project(tmp_path, {})


def test_every_field_of_the_status_file_is_described(tmp_path: Path) -> None:
    status = StatusFile(tmp_path, "shop", itertools.count(0, EVERY_MS).__next__)
    status.progress([Progress("shop.table")], running=True)
    written = read_status(tmp_path)
    described = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", FORMAT, re.M))))
    assert described == set(written) | set(written["streams"][0])
    assert written["state"] == "running"


def test_a_run_whose_process_is_gone_is_lost(tmp_path: Path) -> None:
    StatusFile(tmp_path, "shop", lambda: 0)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    file = tmp_path / "status.json"
    text = file.read_text("utf-8")
    file.write_text(re.sub(r'"pid": \d+', f'"pid": {ended.pid}', text), "utf-8")
    assert read_status(tmp_path)["state"] == "lost"
