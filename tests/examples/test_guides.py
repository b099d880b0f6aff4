"""Guides whose commands are run: each block of shell prints what the block behind it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
STORE = ROOT / "tests/conformance/data/store-5.3.3-clean.tar.gz"
# A block of shell, and what it prints.
STEPS = re.compile(r"```bash\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def test_the_guide_to_the_store_tools_prints_what_it_says(tmp_path: Path) -> None:
    with tarfile.open(STORE) as archive:
        archive.extractall(tmp_path, filter="data")
    text = (ROOT / "docs/guides/store-tools.md").read_text("utf-8")
    steps = STEPS.findall(text)
    assert len(steps) == text.count("```bash"), "a command without its output"
    assert len(steps) > 5
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "PYTHONUTF8": "1",
    }
    for command, printed in steps:
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert (result.stdout, result.stderr) == (printed, ""), command


def test_the_guide_to_transactions_prints_what_it_says() -> None:
    text = (ROOT / "docs/guides/transactions.md").read_text("utf-8")
    ((command, printed),) = STEPS.findall(text)
    assert command == "python examples/transactions.py\n"
    example = ROOT / "examples" / "transactions.py"
    result = subprocess.run(
        [sys.executable, str(example)], capture_output=True, encoding="utf-8", check=False
    )
    assert (result.stdout, result.stderr) == (printed, "")


@pytest.mark.parametrize("document", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.stem)
def test_a_document_names_only_files_that_exist(document: Path) -> None:
    named = re.findall(r"`((?:tests|docs|src)/[\w./-]+)`", document.read_text("utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []
