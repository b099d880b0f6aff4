"""The guide's Python runs, block by block, and prints what the guide says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

    from firearrow.testing.cluster import LocalCluster

GUIDE = Path(__file__).parents[2] / "docs/guides/spark.md"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<printed>.*?)```)?", re.DOTALL)


def test_every_block_of_the_guide_prints_what_it_says(
    spark: SparkSession, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.version
    monkeypatch.setenv("NAMESRV_ADDR", cluster.nameservers)
    names: dict[str, Any] = {}
    text = GUIDE.read_text("utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) > 4
    for block in blocks:
        line = text.count("\n", 0, block.start()) + 1
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + block["code"], str(GUIDE), "exec"), names)
        assert printed.getvalue() == (block["printed"] or ""), f"the block at line {line}"
