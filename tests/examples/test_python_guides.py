"""Guides whose Python is run: every block, in order, against a real broker in this process.

The blocks of a document share one namespace, as if typed into one session, with NAMESRV_ADDR set.
A block of text right behind a block of Python is what it prints. `consumer.run()` gets the SIGTERM
that an operator would send, once everything expected was printed. Blocks with test functions are
run by pytest, with the plug-in, together with the blocks that print nothing and so only define
what tests use. `<!-- not run: why -->` before a block says that it is only shown.

While nothing is printed the broker's clock runs fast, so that delays and retries need no patience.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest
from tests.support import PATIENCE_S

from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
# These need a session: tests/spark runs the first two, and does as the third says (test_sink.py).
ON_SPARK = frozenset({"spark.md", "pipeline-files.md", "spark-sink.md"})
DOCUMENTS = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs/guides").glob("*.md"))]
    if "```python" in path.read_text("utf-8") and path.name not in ON_SPARK
]
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n+)?"
    r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<printed>.*?)```)?",
    re.DOTALL,
)


LOOK_S = 0.005  # how often what was printed is looked at
QUIET_LOOKS = 40  # after so many looks that saw nothing new, the clock goes on


class Block(NamedTuple):
    code: str
    line: int
    printed: str | None
    reason: str | None

    @property
    def has_tests(self) -> bool:
        return re.search(r"^(async )?def test_", self.code, re.MULTILINE) is not None


def blocks_of(document: Path) -> Iterator[Block]:
    text = document.read_text("utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        yield Block(match["code"], line, match["printed"], match["reason"])


class Attendant:
    """Sees to a block that runs: time passes quickly, and in the end somebody says stop."""

    def __init__(self, cluster: LocalCluster, printed: io.StringIO, expected: str) -> None:
        self._cluster = cluster
        self._printed = printed
        self._expected = expected
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        quiet, seen = 0, ""
        while not self._over.wait(LOOK_S):
            now = self._printed.getvalue()
            quiet, seen = (quiet + 1 if now == seen else 0), now
            if quiet and quiet % QUIET_LOOKS == 0:
                self._cluster.advance(minutes=10)
            runs = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # run() is waiting for it
            if runs and (now == self._expected or time.monotonic() > deadline):
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def wait_for_output(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._printed.getvalue() != self._expected and time.monotonic() < deadline:
            time.sleep(LOOK_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def run_block(block: Block, document: Path, names: dict[str, Any], cluster: LocalCluster) -> None:
    # Lines are counted from the top of the document, so that a traceback leads to them.
    code = compile("\n" * block.line + block.code, str(document), "exec")
    printed = io.StringIO()
    expected = block.printed or ""
    with (
        contextlib.redirect_stdout(printed),
        Attendant(cluster, printed, expected) as attendant,
    ):
        exec(code, names)
        if block.printed is not None:
            attendant.wait_for_output()
    if block.printed is not None:
        assert printed.getvalue() == expected, f"{document.name}, line {block.line}"


def run_tests(blocks: list[Block], folder: Path) -> str:
    """Run blocks as a file of tests, the way their reader would."""
    file = folder / "test_guide.py"
    file.write_text("\n\n".join(block.code for block in blocks), "utf-8")
    environment = {name: one for name, one in os.environ.items() if name != "NAMESRV_ADDR"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return ended.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_the_python_of_a_document_does_what_it_says(
    document: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocks = [block for block in blocks_of(document) if block.reason is None]
    tests = [block for block in blocks if block.has_tests]
    names: dict[str, Any] = {"__name__": "__main__"}
    if len(tests) < len(blocks):
        with LocalCluster() as cluster:
            monkeypatch.setenv("NAMESRV_ADDR", cluster.nameservers)
            for block in blocks:
                if not block.has_tests:
                    run_block(block, document, names, cluster)
    if tests:
        output = run_tests([one for one in blocks if one.printed is None], tmp_path)
        wanted = sum(len(re.findall(r"^def test_", block.code, re.MULTILINE)) for block in tests)
        assert re.search(rf"^{wanted} passed", output, re.MULTILINE), output


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_few_blocks_are_only_shown_and_each_says_why(document: Path) -> None:
    blocks = list(blocks_of(document))
    assert len(blocks) == document.read_text("utf-8").count("```python\n"), "a block not found"
    shown = [block for block in blocks if block.reason is not None]
    assert len(shown) <= max(1, len(blocks) // 3)
    assert all(len(block.reason or "") > 10 for block in shown)
