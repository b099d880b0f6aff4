"""A writing process is killed again and again; nothing that it was told is stored is missing.

`make crash` does it 200 times.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.stores import FOREVER_MS, open_store, read_all

REPOSITORY: Final = Path(__file__).parent.parent.parent
ROUNDS: Final = int(os.environ.get("FIREARROW_CRASH_ROUNDS", "4"))
SIZES: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 20 * 100,
    "max_hash_slot_num": 100,
    "max_index_num": 500,
}
QUEUES: Final = 3


def write_and_be_killed(root: Path, of_round: int, acknowledged_at_least: int) -> list[str]:
    """Start a writer, kill it after so many acknowledgements; returns all that were read."""
    command = [sys.executable, "-m", "tests.killed_writer", str(root), str(of_round)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        names = []
        for line in writer.stdout:
            names.append(line.strip())
            if len(names) == acknowledged_at_least:
                writer.kill()
        # What was printed before the kill took effect was acknowledged as well.
        return [name for name in names if name]


async def check(root: Path, acknowledged: set[str]) -> None:
    async with open_store(root, **SIZES) as store:
        assert store.recovered is not None
        assert not store.recovered.damage
        seen: set[str] = set()
        for queue_id in range(QUEUES):
            records = read_all(store, queue_id=queue_id)
            assert [record.queue_offset for record in records] == list(range(len(records)))
            for record in records:
                name = record.body.decode().split()[0]
                number = int(name.split("-")[1])
                assert record.body == f"{name} ".encode() * (1 + number % 7)
                assert number % QUEUES == queue_id
                assert name not in seen, f"{name} is there twice"
                seen.add(name)
        assert acknowledged <= seen, f"lost: {sorted(acknowledged - seen)[:5]}"
        for name in random.sample(sorted(acknowledged), min(5, len(acknowledged))):
            found = store.lookup.by_key("orders", name, limit=4, begin_ms=0, end_ms=FOREVER_MS)
            assert len(found) == 1, f"{name} is not found by its key"


async def test_what_a_killed_writer_was_told_is_stored_is_there(tmp_path: Path) -> None:
    chance = random.Random(ROUNDS)
    acknowledged: set[str] = set()
    for of_round in range(ROUNDS):
        names = write_and_be_killed(tmp_path, of_round, chance.randrange(1, 400))
        assert names
        acknowledged.update(names)
        await check(tmp_path, acknowledged)
