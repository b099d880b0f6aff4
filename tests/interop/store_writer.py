"""A program that fills a store directory by our store with messages of every kind.

    python -m interop.store_writer ROOT PREFIX PORT TOLD_FILE FATE

It writes one line of JSON to TOLD_FILE for each message that is safe on disk. With FATE `stop` it
stops cleanly and ends; with `kill` it goes on and on, until somebody kills it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
import zlib
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from firearrow.base.runtime import SystemClock
from firearrow.hot import StoreMessage, encode_properties, encode_unique_key
from firearrow.model.message import host_bytes
from firearrow.store.store import MessageStore

from .stores import SMALL, message_facts, store_config

if TYPE_CHECKING:
    from collections.abc import Iterator

LOADER: Final = 0x14AE5A5  # any number does
COMPRESSED_OLD: Final = 0x1  # zlib, as before compression had kinds
COMPRESSED_ZLIB: Final = 0x301
PREPARED: Final = 0x4
COMMITTED: Final = 0x8
ROLLED_BACK: Final = 0xC
LARGE_BYTES: Final = (1 << 20) + (1 << 18)
TAIL_QUEUES: Final = 4

# In the order of Java's tables; the last is due in two hours.
LEVELS: Final = (17, 18)


class Author:
    """Makes messages as a producer and a broker would hand them to the store."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._random = random.Random(prefix)
        self._numbers = itertools.count(1)
        self._month_ms = int(
            datetime.now()  # noqa: DTZ005 - RocketMQ's ids count from the local month
            .replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            .timestamp()
            * 1000
        )

    def topic(self, name: str) -> str:
        return self._prefix + name

    def unique_key(self) -> str:
        since_month_ms = int(time.time() * 1000) - self._month_ms
        return encode_unique_key(bytes([127, 0, 0, 1]), 99, LOADER, since_month_ms, self.number())

    def number(self) -> int:
        return next(self._numbers)

    def message(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: dict[str, str] | None = None,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_address: str = "127.0.0.1",
        store_host: bytes | None = None,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> StoreMessage:
        named = {"UNIQ_KEY": self.unique_key(), "CLUSTER": "somewhere"} | (properties or {})
        named = {name: value for name, value in named.items() if value}
        return StoreMessage(
            topic,
            queue_id,
            body,
            encode_properties(named).encode(),
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=int(time.time() * 1000) - 5,
            born_host=host_bytes(born_address, 40_000 + queue_id),
            store_host=store_host,
            reconsume_times=reconsume_times,
            prepared_offset=prepared_offset,
        )

    def everything(self) -> Iterator[list[StoreMessage]]:
        """Messages to be put one by one, and lists of several to be put as a batch."""
        yield from self._plain()
        yield from self._many()
        yield from self._batches()
        yield from self._odd_bodies()
        yield from self._large()
        yield from self._delayed()
        yield from self._transactions()
        yield from self._retries()

    def _plain(self) -> Iterator[list[StoreMessage]]:
        tags = ("TagA", "TagB", "标签", "")
        for number in range(320):
            keys = (
                f"ключ-{number} 🔑-{number}" if number % 5 == 0 else f"key-{number} k{number % 7}"
            )
            properties = {"TAGS": tags[number % 4 - 1], "KEYS": keys, "цвет": f"красный {number}"}
            yield [
                self.message(
                    self.topic("plain"),
                    number % 4,
                    f"text {number} ✓ 中文 😀".encode(),
                    properties,
                    flag=number,
                    born_address="2001:db8::17" if number % 10 == 0 else "192.0.2.17",
                    store_host=host_bytes("2001:db8::1", 10_911) if number % 40 == 0 else None,
                )
            ]

    def _many(self) -> Iterator[list[StoreMessage]]:
        for topic, queue_id, number in itertools.product(range(20), range(2), range(3)):
            body = f"{topic}/{queue_id}/{number}".encode()
            properties = {"KEYS": f"many-{topic}-{queue_id}-{number}"}
            yield [self.message(self.topic(f"many-{topic:02d}"), queue_id, body, properties)]

    def _batches(self) -> Iterator[list[StoreMessage]]:
        for batch in range(8):
            names = [f"b{batch}-{number}" for number in range(10)]
            yield [
                self.message(self.topic("batch"), batch % 2, name.encode(), {"KEYS": name})
                for name in names
            ]

    def _odd_bodies(self) -> Iterator[list[StoreMessage]]:
        topic = self.topic("odd")
        yield [self.message(topic, 0, b"", {"KEYS": "empty", "TAGS": "Empty"})]
        yield [StoreMessage(topic, 0, b"")]  # not even a property
        # Between 4.9.1 and 5.1 the last property had no end mark.
        yield [StoreMessage(topic, 0, b"no end mark", b"KEYS\x01markless\x02TAGS\x01TagA")]
        for sys_flag in (COMPRESSED_OLD, COMPRESSED_ZLIB):
            packed = zlib.compress(b"compress me, please " * 20_000)
            yield [self.message(topic, 1, packed, {"KEYS": "packed"}, sys_flag=sys_flag)]

    def _large(self) -> Iterator[list[StoreMessage]]:
        for number in range(9):
            body = self._random.randbytes(LARGE_BYTES + number)
            yield [self.message(self.topic("large"), 0, body, {"KEYS": f"large-{number}"})]

    def _delayed(self) -> Iterator[list[StoreMessage]]:
        for level in LEVELS:
            for number in range(3):
                properties = {
                    "DELAY": str(level),
                    "REAL_TOPIC": self.topic("plain"),
                    "REAL_QID": "1",
                    "KEYS": f"delayed-{level}-{number}",
                }
                yield [self.message("SCHEDULE_TOPIC_XXXX", level - 1, b"later", properties)]

    def _transactions(self) -> Iterator[list[StoreMessage]]:
        topic = self.topic("plain")
        names = {"TRAN_MSG": "true", "PGROUP": "writer", "REAL_TOPIC": topic, "REAL_QID": "2"}
        half = self.message("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"half", names)
        yield [half]
        yield [
            self.message(
                topic, 2, b"half", names, sys_flag=COMMITTED, prepared_offset=half.physical_offset
            )
        ]
        # Of brokers before 4.3; they have no place in a queue, so nobody will see them.
        for sys_flag in (PREPARED, ROLLED_BACK):
            yield [self.message(topic, 2, b"old", {"KEYS": "old"}, sys_flag=sys_flag)]
        yield [self.message(topic, 2, b"behind them", {"KEYS": "behind-old"})]

    def _retries(self) -> Iterator[list[StoreMessage]]:
        for name in ("g", "g" * 60 + "_" + "t" * 80):  # the second has a record of version 2
            topic = f"%RETRY%{self.topic(name)}"
            properties = {"RETRY_TOPIC": self.topic("plain"), "KEYS": "retried"}
            yield [self.message(topic, 0, b"again", properties, reconsume_times=3)]
            yield [self.message(topic, 0, b"again", properties, reconsume_times=4)]

    def tail(self, number: int) -> StoreMessage:
        body = f"tail {number}".encode()
        return self.message(
            self.topic("tail"), number % TAIL_QUEUES, body, {"KEYS": f"tail-{number}"}
        )


async def write(root: Path, prefix: str, port: int, told: Path, fate: str) -> None:
    store = MessageStore(
        store_config(root, SMALL), SystemClock(), store_host=host_bytes("127.0.0.1", port)
    )
    await store.start()
    author = Author(prefix)
    with told.open("w", buffering=1) as lines:

        async def tell(messages: list[StoreMessage], end: int) -> None:
            await store.wait_flushed(end)
            for message in messages:
                if message.sys_flag & ROLLED_BACK in {PREPARED, ROLLED_BACK}:
                    continue
                record = store.lookup.record_at(message.physical_offset)
                assert record is not None
                lines.write(json.dumps(message_facts(record)) + "\n")

        for messages in author.everything():
            put = store.put_batch if len(messages) > 1 else lambda some: store.put(some[0])
            await tell(messages, put(messages))
        if fate == "stop":
            await store.stop()
            return
        for number in itertools.count():
            message = author.tail(number)
            await tell([message], store.put(message))


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(write(Path(given[0]), given[1], int(given[2]), Path(given[3]), given[4]))
