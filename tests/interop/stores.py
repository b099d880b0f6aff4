"""Store directories in tests with Apache: who writes them, who reads them, and in which words.

A message is described by the same facts whether the Java client (`StoreReading.java`) or our store
has read it, so that two descriptions can simply be compared.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from firearrow.base.runtime import SystemClock
from firearrow.hot import StoreMessage, decode_properties, decode_record, offset_message_id
from firearrow.model.group import SubscriptionGroupConfig
from firearrow.model.message import FLAG_COMPRESSED
from firearrow.model.topic import TopicConfig
from firearrow.offline.payload import messages_of
from firearrow.store.config import StoreConfig
from firearrow.store.rules import index_keys
from firearrow.store.store import MessageStore
from firearrow.wire import java_json
from firearrow.wire.bodies.groups import SubscriptionGroupWrapper
from firearrow.wire.bodies.offsets import ConsumerOffsetWrapper
from firearrow.wire.bodies.registration import TopicConfigSerializeWrapper

from .apache import START_TIMEOUT_S, Broker, NameServer, java_command, start_broker
from .cache import HERE
from .processes import Bench, PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from firearrow.hot import Record

COMMAND_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
ALWAYS_MS: Final = 1 << 62

# Files so small that there are several of each kind: a message of a megabyte must fit into one of
# the log, a queue file holds 50 entries.
SMALL: Final[Mapping[str, int]] = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 400,
}
# What a broker has that was told nothing.
USUAL: Final[Mapping[str, int]] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}

Place = tuple[str, int, int]  # topic, queue, offset
Queue = tuple[str, int]
Facts = dict[str, Any]


def store_config(root: Path, sizes: Mapping[str, int]) -> StoreConfig:
    """Our store with the same files as a broker that was given these sizes."""
    return StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=sizes["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=sizes["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=sizes["maxHashSlotNum"],
        max_index_num=sizes["maxIndexNum"],
    )


# --- messages ---------------------------------------------------------------------------------


def message_facts(record: Record) -> Facts:
    """A record in the words of `StoreReading.java`."""
    (message,) = messages_of(record)
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeSize": record.size,
        "offsetMsgId": offset_message_id(
            record.store_ip, record.store_port, record.physical_offset
        ),
        "flag": record.flag,
        "sysFlag": record.sys_flag & ~FLAG_COMPRESSED,  # which a client takes off when it unpacks
        "bornTimestamp": record.born_timestamp,
        "bornHost": f"{record.born_ip.hex()}:{record.born_port}",
        "storeTimestamp": record.store_timestamp,
        "storeHost": f"{record.store_ip.hex()}:{record.store_port}",
        "reconsumeTimes": record.reconsume_times,
        "preparedOffset": record.prepared_offset,
        "bodyCrc": record.body_crc,
        "bodySize": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
        "properties": decode_properties(record.properties),
    }


def place_of(facts: Facts) -> Place:
    return facts["topic"], facts["queueId"], facts["queueOffset"]


def by_place(messages: Iterable[Facts]) -> dict[Place, Facts]:
    """Messages by topic, queue and offset, each of which may come only once."""
    found: dict[Place, Facts] = {}
    for facts in messages:
        assert place_of(facts) not in found, facts
        found[place_of(facts)] = facts
    return found


def ends_of(messages: Iterable[Place]) -> dict[Queue, int]:
    """Behind the last message of each queue, in queues that begin at 0 and have no gaps."""
    offsets: dict[Queue, set[int]] = {}
    for topic, queue_id, offset in messages:
        offsets.setdefault((topic, queue_id), set()).add(offset)
    for queue, known in offsets.items():
        assert known == set(range(len(known))), queue
    return {queue: len(known) for queue, known in offsets.items()}


# --- our store --------------------------------------------------------------------------------


@dataclass(slots=True)
class Survey:
    """What our store found in a directory."""

    clean: bool
    damage: list[str]
    ends: dict[Queue, tuple[int, int]]
    messages: dict[Place, Facts]
    by_key: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    times: dict[tuple[str, int, int], tuple[int, int]] = field(default_factory=dict)
    appended: list[Facts] = field(default_factory=list)
    left: dict[Queue, tuple[int, int]] = field(default_factory=dict)  # both ends, afterwards


def survey(
    root: Path,
    sizes: Mapping[str, int],
    *,
    times: Iterable[tuple[str, int, int]] = (),
    append: Iterable[StoreMessage] = (),
    remove_files: int = 0,
) -> Survey:
    """Open a directory with our store, read all there is, append something, and stop cleanly.

    Args:
        root: The directory.
        sizes: Of its files.
        times: Topic, queue and timestamp of offsets to look up.
        append: Messages to put.
        remove_files: How many files of the log to remove then, as retention does.
    """
    store = MessageStore(store_config(root, sizes), SystemClock())
    return asyncio.run(_survey(store, times, append, remove_files))


async def _survey(
    store: MessageStore,
    times: Iterable[tuple[str, int, int]],
    append: Iterable[StoreMessage],
    remove_files: int,
) -> Survey:
    recovered = await store.start()
    grown = asyncio.Event()
    store.listen(lambda _: grown.set())
    try:
        lookup = store.lookup
        records = [record for queue in store.queues() for record in records_of(store, *queue)]
        messages = by_place(map(message_facts, records))
        found = Survey(recovered.clean, recovered.damage, queue_ends(store), messages)
        for record in records:
            for key in index_keys(record.properties):
                if (record.topic, key) not in found.by_key:
                    found.by_key[record.topic, key] = ids_of_key(store, record.topic, key)
        for topic, queue_id, timestamp in times:
            found.times[topic, queue_id, timestamp] = (
                lookup.offset_by_time(topic, queue_id, timestamp),
                lookup.offset_by_time(topic, queue_id, timestamp, upper=True),
            )
        for message in append:
            await store.wait_flushed(store.put(message))
            while lookup.max_offset(message.topic, message.queue_id) <= message.queue_offset:
                grown.clear()  # it becomes visible a moment after it is on disk
                await grown.wait()
            stored = lookup.record_at(message.physical_offset)
            assert stored is not None
            found.appended.append(message_facts(stored))
        store.remove_files(remove_files)
        found.left = queue_ends(store)
    finally:
        await store.stop()
    return found


def queue_ends(store: MessageStore) -> dict[Queue, tuple[int, int]]:
    """The first offset of each queue, and the one behind its last."""
    lookup = store.lookup
    return {
        queue: (lookup.min_offset(*queue), lookup.max_offset(*queue)) for queue in store.queues()
    }


def records_of(store: MessageStore, topic: str, queue_id: int) -> Iterator[Record]:
    """Every record of a queue, read as a consumer reads it."""
    offset = store.lookup.min_offset(topic, queue_id)
    while offset < store.lookup.max_offset(topic, queue_id):
        got = store.get(topic, queue_id, offset, 32)
        assert got.next_offset > offset, got
        for piece in got.slices:
            at = 0
            while at < len(piece):
                record = decode_record(piece, at)
                yield record
                at += record.size
        offset = got.next_offset


def ids_of_key(store: MessageStore, topic: str, key: str) -> list[str]:
    found = store.lookup.by_key(topic, key, limit=64, begin_ms=0, end_ms=ALWAYS_MS)
    return sorted(
        offset_message_id(record.store_ip, record.store_port, record.physical_offset)
        for record in found
    )


def start_writer(
    bench: Bench, root: Path, *, prefix: str, port: int, told: Path, fate: str
) -> PeerProcess:
    """Start the program that fills a directory with our store."""
    words = [str(root), prefix, str(port), str(told), fate]
    return bench.start(
        f"writer-{fate}",
        [sys.executable, "-m", "interop.store_writer", *words],
        environment={"PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])},
    )


def told_messages(told: Path) -> list[Facts]:
    """What a writer said; the last line may be cut when it was killed."""
    lines = told.read_text().splitlines(keepends=True) if told.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


# --- config -----------------------------------------------------------------------------------


def write_config(root: Path, ends: Mapping[Queue, int], committed: ConsumerOffsetWrapper) -> None:
    """What a broker needs beside the messages: topics, groups and committed offsets."""
    queues: dict[str, int] = {}
    for topic, queue_id in ends:
        queues[topic] = max(queues.get(topic, 0), queue_id + 1)
    topics = TopicConfigSerializeWrapper(
        topic_config_table={
            topic: TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
            for topic, count in queues.items()
            if not topic.startswith(("SCHEDULE", "RMQ_SYS"))
        }
    )
    names = {name.partition("@")[2] for name in committed.offset_table}
    groups = SubscriptionGroupWrapper(
        subscription_group_table={
            name: SubscriptionGroupConfig(group_name=name, retry_max_times=7) for name in names
        }
    )
    folder = root / "config"
    folder.mkdir()
    (folder / "topics.json").write_bytes(java_json.encode(topics))
    (folder / "subscriptionGroup.json").write_bytes(java_json.encode(groups))
    (folder / "consumerOffset.json").write_bytes(java_json.encode(committed, bare_int_keys=True))


def read_committed(root: Path) -> dict[str, dict[int, int]]:
    """Committed offsets as a broker has left them, by ``topic@group`` and queue."""
    file = root / "config" / "consumerOffset.json"
    return java_json.decode(file.read_bytes(), ConsumerOffsetWrapper).offset_table


# --- Apache -----------------------------------------------------------------------------------


def start_broker_on(
    bench: Bench,
    nameserver: NameServer,
    root: Path,
    *,
    name: str,
    port: int,
    sizes: Mapping[str, int],
) -> Broker:
    """Start an Apache broker on a directory, without waiting for it."""
    return start_broker(
        bench,
        nameserver,
        name=name,
        cluster=f"{name}-cluster",
        port=port,
        extra={
            "storePathRootDir": root,
            "storePathCommitLog": root / "commitlog",
            **sizes,
            "flushConsumerOffsetInterval": 1000,
            # A half message that nobody asks about stays where it is.
            "transactionCheckInterval": 86_400_000,
        },
    )


def stop_cleanly(*brokers: Broker) -> None:
    """Stop brokers in order, all at the same time."""
    for broker in brokers:
        broker.process.terminate()
    for broker in brokers:
        broker.process.wait_for_exit(timeout_s=STOP_TIMEOUT_S)


@dataclass(slots=True)
class JavaView:
    """What the Java client read from a broker."""

    ends: dict[Queue, tuple[int, int]]
    messages: dict[Place, Facts]
    times: dict[tuple[str, int, int], tuple[int, int]]


class StoreClient:
    """The Java client, in one JVM for all questions (`StoreShell.java`)."""

    def __init__(self, bench: Bench, nameserver: NameServer) -> None:
        self._folder = bench.new_folder("store-client")
        self._count = 0
        command = java_command(
            "firearrow.interop.StoreShell",
            work_dir=self._folder,
            heap=("-Xmx256m",),
            arguments=[nameserver.address, str(self._folder)],
        )
        self._shell = bench.start("store-client", command, work_dir=self._folder)
        self._shell.wait_for_line("store shell ready", timeout_s=START_TIMEOUT_S)

    def ask(self, *words: object) -> Any:
        """Run one command and return what it found."""
        self._count += 1
        number = str(self._count)
        self._shell.send_line("\x1f".join([number, *map(str, words)]))
        line = self._shell.wait_for_line(rf'^\{{"id":{number},.*\}}$', timeout_s=COMMAND_TIMEOUT_S)
        answer = json.loads(line[0])
        if not answer["ok"]:
            raise PeerError(f"{words[:3]} failed: {answer['error']}\n{self._shell.tail()}")
        return json.loads((self._folder / f"{number}.json").read_text())

    def read(self, broker: Broker, queues: Iterable[Queue]) -> JavaView:
        """Read every message of these queues."""
        found = self.ask("read", broker.name, *queue_words(queues))
        return JavaView(
            {
                (each["topic"], each["queueId"]): (each["min"], each["max"])
                for each in found["queues"]
            },
            by_place(found["messages"]),
            {
                (each["topic"], each["queueId"], each["timestamp"]): (each["lower"], each["upper"])
                for each in found["times"]
            },
        )

    def find(self, broker: Broker, questions: Iterable[tuple[str, str, str]]) -> list[list[str]]:
        """Offset ids of what is found by kind (`key`, `unique`, `id`), topic and name."""
        words = [word for question in questions for word in question]
        return [sorted(ids) for ids in self.ask("find", broker.cluster, *words)]

    def committed(self, group: str, broker: Broker, queues: Iterable[Queue]) -> list[int]:
        return list(self.ask("committed", group, broker.name, *queue_words(queues)))


def queue_words(queues: Iterable[Queue]) -> list[str]:
    return [f"{topic}:{queue_id}" for topic, queue_id in queues]
