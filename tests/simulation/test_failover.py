"""Whole clusters under virtual time, each with troubles from a seed.

FIREARROW_SEEDS=500     pytest tests/simulation/test_failover.py  the nightly form: make seeds
FIREARROW_SEEDS=100-200 pytest tests/simulation/test_failover.py  a part of it
FIREARROW_SEED=17       pytest tests/simulation/test_failover.py  one story again
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.simulation.failover import run_seed

if TYPE_CHECKING:
    from pathlib import Path

ONE = os.environ.get("FIREARROW_SEED")
FIRST, _, STOP = os.environ.get("FIREARROW_SEEDS", "20").rpartition("-")
SEEDS = [int(ONE)] if ONE else range(int(FIRST or 0), int(STOP))


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_whatever_happens_to_the_cluster(
    seed: int, tmp_path: Path
) -> None:
    try:
        run_seed(seed, tmp_path)
    except BaseException as error:
        error.add_note(
            f"again: PYTHONHASHSEED=0 FIREARROW_SEED={seed} "
            "python -m pytest tests/simulation/test_failover.py"
        )
        raise
