"""``python -m benchmarks``: everything, with both twins of the hot code where both are there."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import Measured, keep


def modules() -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))


def run_all() -> list[Measured]:
    results: list[Measured] = []
    for name in modules():
        for result in importlib.import_module(f"benchmarks.{name}").run():
            print(result, flush=True)
            results.append(result)
    return results


def main() -> None:
    if os.environ.get("FIREARROW_HOT"):
        keep(run_all())
        return
    for twin in ("native", "reference"):
        environment = os.environ | {"FIREARROW_HOT": twin}
        probe = [sys.executable, "-c", "import firearrow.hot"]
        if subprocess.run(probe, env=environment, capture_output=True, check=False).returncode:
            print(f"({twin} hot code is not installed here)")
            continue
        subprocess.run([sys.executable, "-m", "benchmarks"], env=environment, check=True)


main()
