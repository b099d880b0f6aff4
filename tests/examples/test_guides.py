"""Guides whose commands are run: each block of shell prints what the block behind it says."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.broker_requests import pull, send, sent, texts
from tests.support import running_broker

ROOT = Path(__file__).parent.parent.parent
FILTERING = ROOT / "docs/guides/filtering.md"
STORE = ROOT / "tests/conformance/data/store-5.3.3-clean.tar.gz"
# A block of shell, and what it prints.
STEPS = re.compile(r"```bash\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def run_steps(text: str, folder: Path) -> int:
    """Run every block of shell; each must print what the block behind it says."""
    steps = STEPS.findall(text)
    assert len(steps) == text.count("```bash"), "a command without its output"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "PYTHONUTF8": "1",
    }
    for command, printed in steps:
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert (result.stdout, result.stderr) == (printed, ""), command
    return len(steps)


def test_the_guide_to_the_store_tools_prints_what_it_says(tmp_path: Path) -> None:
    with tarfile.open(STORE) as archive:
        archive.extractall(tmp_path, filter="data")
    text = (ROOT / "docs/guides/store-tools.md").read_text("utf-8")
    assert run_steps(text, tmp_path) > 5


def test_the_guide_to_filters_prints_what_it_says(tmp_path: Path) -> None:
    assert run_steps(FILTERING.read_text("utf-8"), tmp_path) == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="filters need Linux's seccomp")
async def test_the_filter_of_the_guide_is_installed_by_its_command_and_filters(
    tmp_path: Path,
) -> None:
    text = FILTERING.read_text("utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "large_orders.py").write_text(source, "utf-8")
    (command,) = re.findall(r"\$ (firearrow filter install .*)\n(.*)\n", text)
    settings: dict[str, Any] = {"filter_server_nums": 2, "filter_installers": "127.0.0.1"}
    async with running_broker(tmp_path / "store", **settings) as served:
        address = served.broker.address
        asked, printed = (part.replace("127.0.0.1:10911", address) for part in command)
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", *asked.split()], cwd=tmp_path, stdout=subprocess.PIPE
        )
        assert (await process.communicate())[0].decode() == printed + "\n"
        for amount, region in ((120, "EU"), (90, "EU"), (130, "US")):
            body = f'{{"amount": {amount}}}'.encode()
            sent(await served.ask(send(body, properties={"region": region})))
        asked_for = pull(expression="large-orders", expression_type="PYTHON")
        assert texts(await served.ask(asked_for)) == [b'{"amount": 120}']


def test_the_guide_to_transactions_prints_what_it_says() -> None:
    text = (ROOT / "docs/guides/transactions.md").read_text("utf-8")
    ((command, printed),) = STEPS.findall(text)
    assert command == "python examples/transactions_by_hand.py\n"
    example = ROOT / "examples" / "transactions_by_hand.py"
    result = subprocess.run(
        [sys.executable, str(example)], capture_output=True, encoding="utf-8", check=False
    )
    assert (result.stdout, result.stderr) == (printed, "")


@pytest.mark.parametrize("document", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.stem)
def test_a_document_names_only_files_that_exist(document: Path) -> None:
    named = re.findall(r"`((?:tests|docs|src)/[\w./-]+)`", document.read_text("utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []
