"""Store directories in parts on Spark: files of logs are read, what they say goes to its queue.

    files of logs ──► read_part ──► kept on the workers' disks ──► by queue, in the order of the log
                                                              └──► by index file

`audit.py` and `rebuild.py` say what is done with the parts; the rules are all in `offline/`.
"""

from __future__ import annotations

import itertools
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from pyspark import StorageLevel

from firearrow.base.errors import ConfigError
from firearrow.offline.derived import QueueKey
from firearrow.offline.directory import StoreDirectory
from firearrow.offline.parts import KeyChunk, LogPart, UnitChunk, read_part
from firearrow.spark.log_options import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

    from firearrow.offline.derived import UnitRules

    T = TypeVar("T")

TASKS_PER_CORE: Final = 2
BYTES_PER_TASK: Final = 128 << 20
Found = tuple[int, Any]  # number of the store, and a LogPart, a UnitChunk or a KeyChunk


def open_directories(paths: Sequence[str], config: str | None = None) -> list[StoreDirectory]:
    """The stores, each once; ConfigError says which is none."""
    if not paths:
        raise ConfigError("no store directory is given: name the storePathRootDir of a broker")
    shape = shape_of(config)
    roots = dict.fromkeys(Path(path).resolve() for path in paths)
    return [StoreDirectory(root, shape) for root in roots]


class Parts:
    """The log files of some stores, read once; use it with `with`."""

    def __init__(
        self,
        spark: SparkSession,
        stores: Sequence[tuple[StoreDirectory, UnitRules | None]],
        *,
        judge: bool = False,
        index: bool = False,
    ) -> None:
        context = spark.sparkContext
        self._shared = context.broadcast(list(stores))
        files = [
            (number, file.first_offset)
            for number, (store, _) in enumerate(stores)
            for file in store.log_files
        ]
        self.tasks = max(1, TASKS_PER_CORE * context.defaultParallelism)
        shared = self._shared

        def read(place: tuple[int, int]) -> Iterator[Found]:
            number, first_offset = place
            store, rules = shared.value[number]
            for found in read_part(store, first_offset, rules, judge=judge, index=index):
                yield number, found

        size = sum(file.size for store, _ in stores for file in store.log_files)
        slices = slices_of(context, len(files), size)
        self._found: RDD[Found] = (
            context.parallelize(files, slices).flatMap(read).persist(StorageLevel.DISK_ONLY)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._found.unpersist()
        self._shared.destroy()

    def logs(self) -> dict[int, list[LogPart]]:
        """Read everything; what is known of each file, by store."""
        found = self._found.filter(lambda one: isinstance(one[1], LogPart)).collect()
        return by_store(found)

    def by_queue(
        self,
        work: Callable[[StoreDirectory, int, QueueKey, Iterator[UnitChunk]], T],
        also: Iterable[tuple[int, QueueKey]] = (),
    ) -> dict[int, list[T]]:
        """`work` done once for each queue that the log mentions, and for those of `also`."""
        shared = self._shared

        def keyed(one: Found) -> tuple[tuple[Any, ...], bytes]:
            number, chunk = one
            return (number, *chunk.key, chunk.place), chunk.packed

        def each(sorted_chunks: Iterable[tuple[tuple[Any, ...], bytes]]) -> Iterator[Found]:
            for queue, chunks in itertools.groupby(sorted_chunks, lambda one: one[0][:4]):
                number, key = queue[0], QueueKey(*queue[1:])
                there = (UnitChunk(key, place[4], packed) for place, packed in chunks if packed)
                yield number, work(shared.value[number][0], number, key, there)

        chunks = self._found.filter(lambda one: isinstance(one[1], UnitChunk)).map(keyed)
        empty = [((number, *key, -1), b"") for number, key in also]
        if empty:
            chunks = chunks.union(self._found.context.parallelize(empty, 1))
        ordered = chunks.repartitionAndSortWithinPartitions(
            self.tasks, partitionFunc=lambda key: zlib.crc32(repr(key[:4]).encode())
        )
        return by_store(ordered.mapPartitions(each).collect())

    def key_chunks(self) -> RDD[Found]:
        """What the index needs, as it lies on the workers."""
        return self._found.filter(lambda one: isinstance(one[1], KeyChunk))

    def by_table(
        self,
        tables: Mapping[int, Sequence[int]],
        work: Callable[[int, list[KeyChunk]], T],
    ) -> list[T]:
        """`work` done once for each index file; `tables` says who needs the chunk of a place."""

        def wanted(one: Found) -> Iterator[tuple[tuple[int, int], KeyChunk]]:
            chunk: KeyChunk = one[1]
            for table in tables.get(chunk.place, ()):
                yield (table, chunk.place), chunk

        def each(sorted_chunks: Iterable[tuple[tuple[int, int], KeyChunk]]) -> Iterator[T]:
            for table, chunks in itertools.groupby(sorted_chunks, lambda one: one[0][0]):
                yield work(table, [chunk for _, chunk in chunks])

        ordered = (
            self.key_chunks()
            .flatMap(wanted)
            .repartitionAndSortWithinPartitions(self.tasks, partitionFunc=lambda key: key[0])
        )
        return list(ordered.mapPartitions(each).collect())


def slices_of(context: SparkContext, pieces: int, size: int) -> int:
    """In how many tasks to do some pieces of work: each costs time of its own."""
    wanted = max(TASKS_PER_CORE * context.defaultParallelism, size // BYTES_PER_TASK)
    return max(1, min(pieces, wanted))


def by_store(found: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    """What was found, by the number of its store."""
    sorted_out: dict[int, list[T]] = {}
    for number, one in found:
        sorted_out.setdefault(number, []).append(one)
    return sorted_out
