"""The power is lost at any moment, again and again: what was acknowledged is there, and no more.

Every run follows from its seed; a failing one names it. More runs:
``FIREARROW_POWER_SEEDS=5000 pytest tests/simulation``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.simulation.world import run

from firearrow.store.config import FlushDiskType

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = int(os.environ.get("FIREARROW_POWER_SEEDS", "60"))
FIRST_SEED = int(os.environ.get("FIREARROW_POWER_FIRST_SEED", "0"))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
async def test_no_acknowledged_message_is_lost_in_a_power_loss(tmp_path: Path, seed: int) -> None:
    await run(tmp_path, seed, FlushDiskType.SYNC_FLUSH)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
async def test_what_a_power_loss_leaves_of_an_asynchronous_store_has_no_hole(
    tmp_path: Path, seed: int
) -> None:
    await run(tmp_path, seed, FlushDiskType.ASYNC_FLUSH)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
async def test_a_sick_disk_costs_no_acknowledged_message(tmp_path: Path, seed: int) -> None:
    """It is full, is freed, fails to sync, and loses its power, in any order."""
    await run(tmp_path, seed, FlushDiskType.SYNC_FLUSH, is_sick=True)
