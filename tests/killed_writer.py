"""A program that writes to a store until it is killed, and says what was acknowledged.

    python killed_writer.py DIR ROUND

Each line of output is the id of one message whose `wait_flushed` has returned. Many wait at once,
so that kills fall into groups of commits, and files are small, so that they fall into rolls, too.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from tests.stores import small_config

from firearrow.base.runtime import SystemClock
from firearrow.hot import StoreMessage
from firearrow.store.store import MessageStore

PRODUCERS = 16
QUEUES = 3


async def produce(store: MessageStore, ids: itertools.count[int], of_round: str) -> None:
    while True:
        number = next(ids)
        name = f"{of_round}-{number}"
        body = f"{name} ".encode() * (1 + number % 7)
        properties = f"KEYS\x01{name}\x02UNIQ_KEY\x01U{name}\x02".encode()
        end = store.put(StoreMessage("orders", number % QUEUES, body, properties))
        await store.wait_flushed(end)
        os.write(1, f"{name}\n".encode())


async def main() -> None:
    root, of_round = Path(sys.argv[1]), sys.argv[2]
    config = small_config(
        root,
        mapped_file_size_commit_log=64 * 1024,
        mapped_file_size_consume_queue=20 * 100,
        max_hash_slot_num=100,
        max_index_num=500,
        flush_interval_consume_queue=5,
        flush_consume_queue_thorough_interval=20,
    )
    store = MessageStore(config, SystemClock())
    await store.start()
    ids = itertools.count()
    async with asyncio.TaskGroup() as group:
        for _ in range(PRODUCERS):
            group.create_task(produce(store, ids, of_round))


if __name__ == "__main__":
    asyncio.run(main())
