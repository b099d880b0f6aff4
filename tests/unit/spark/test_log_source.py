"""Commit-log files in ranges, without Spark: every record once, nothing that is none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StructType
from tests.store_builder import BLANK, START_MS, sample_store

from firearrow.base.errors import ConfigError
from firearrow.hot import Record, encode_record
from firearrow.offline.directory import Shape, StoreDirectory
from firearrow.offline.dump import dump
from firearrow.offline.log_walk import Damage
from firearrow.spark.errors import CorruptLog, DataLoss, OptionError, SchemaError
from firearrow.spark.log_options import LogOptions
from firearrow.spark.log_plan import LogPlan, Span, open_stores, plan_ranges
from firearrow.spark.log_reader import LogReader, LogStreamReader
from firearrow.spark.log_reading import LogRanges, read_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.spark.log_plan import LogRange

SEGMENT = 8 << 10
SHAPE = Shape(segment_bytes=SEGMENT)
SCHEMA = StructType().add("physicalOffset", "long").add("topic", "string").add("body", "binary")
BODY_AT = 88  # in a record between IPv4 hosts


class LogWriter:
    """A commit log whose bodies may know where they will lie."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = bytearray()
        self.written: list[tuple[int, str, bytes]] = []
        self._now_ms = START_MS

    def append(self, body: bytes, topic: str = "Orders", *, fake_at: int | None = None) -> None:
        """A record; `fake_at` puts another one that names its place into its body."""
        self._now_ms += 10
        size = 0
        while True:
            at = len(self.log)
            content = body
            if fake_at is not None:
                inner = Record("Fake", b"fake", physical_offset=at + BODY_AT + fake_at)
                content = body[:fake_at].ljust(fake_at, b"-") + encode_record(inner) + body
            record = Record(
                topic, content, physical_offset=at, store_timestamp=self._now_ms, queue_id=1
            )
            raw = encode_record(record)
            left = SEGMENT - at % SEGMENT
            if len(raw) + BLANK.size <= left:
                break
            assert size == 0, "a record that fits no file"
            size = len(raw)
            self.log += BLANK.pack(left, 0xCBD43194) + bytes(left - BLANK.size)
        self.log += raw
        self.written.append((at, topic, content))

    def save(self) -> StoreDirectory:
        folder = self.root / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(self.log), SEGMENT):
            part = bytes(self.log[start : start + SEGMENT])
            (folder / f"{start:020d}").write_bytes(part.ljust(SEGMENT, b"\0"))
        return StoreDirectory(self.root, SHAPE)


def options(root: Path, **given: Any) -> LogOptions:
    config = root.parent / f"{root.name}.conf"
    config.write_text(f"mappedFileSizeCommitLog={SEGMENT}\n")
    told = {"path": str(root), "config": str(config)}
    return LogOptions.parse(told | {k: str(v) for k, v in given.items()}, streaming=True)


def rows_of(
    told: LogOptions, ranges: Iterable[LogRange], schema: StructType = SCHEMA
) -> list[tuple[Any, ...]]:
    return [
        tuple(row.values())
        for batch in read_ranges(told, schema, LogRanges(tuple(ranges)))
        for row in batch.to_pylist()
    ]


def ranges_of(store: StoreDirectory, every: int, *, lenient: bool = False) -> list[LogRange]:
    return plan_ranges([store], span=Span(), lenient=lenient, min_partitions=1, range_bytes=every)


messages = st.lists(
    st.tuples(
        st.binary(max_size=900),
        st.sampled_from(["Orders", "Paid", "taxi-火"]),
        st.none() | st.integers(0, 300),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=60)
@given(messages, st.integers(1, 3 * SEGMENT))
def test_ranges_tile_the_log_and_no_body_is_read_as_a_record(
    tmp_path_factory: pytest.TempPathFactory,
    content: list[tuple[bytes, str, int | None]],
    every: int,
) -> None:
    root = tmp_path_factory.mktemp("log") / "store"
    writer = LogWriter(root)
    for body, topic, fake_at in content:
        writer.append(body, topic, fake_at=fake_at)
    store = writer.save()
    ranges = ranges_of(store, every)
    starts = {at for at, _, _ in writer.written}
    assert all(one.first_offset + one.start in starts for one in ranges)
    one_by_one = [row for one in ranges for row in rows_of(options(root), [one])]
    assert one_by_one == writer.written
    assert rows_of(options(root, batchBytes=700, batchRows=3), ranges) == writer.written


@settings(max_examples=60)
@example(
    [b"", b"", b"", b"x", b""], 1, [(250, b"\x01"), (299, b"\x00")]
)  # time falls behind a break
@example([b""] * 5, 1, [(0, bytes(4)), (250, b"\x01"), (294, b"\x00")])  # the same after another
@given(
    st.lists(st.binary(max_size=600), min_size=5, max_size=60),
    st.integers(1, 2 * SEGMENT),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=40)), max_size=3),
)
def test_around_damage_the_rows_are_those_of_a_dump(
    tmp_path_factory: pytest.TempPathFactory,
    bodies: list[bytes],
    every: int,
    damages: list[tuple[int, bytes]],
) -> None:
    root = tmp_path_factory.mktemp("log") / "store"
    writer = LogWriter(root)
    for body in bodies:
        writer.append(body)
    for place, damage in damages:
        at = place % len(writer.log)
        writer.log[at : at + len(damage)] = damage[: len(writer.log) - at]
    store = writer.save()
    found = list(dump(store))
    expected = [
        (one.record.physical_offset, one.record.topic, one.body)
        for one in found
        if not isinstance(one, Damage)
    ]
    rows = rows_of(options(root, onCorrupt="skip"), ranges_of(store, every, lenient=True))
    assert rows == expected
    if any(isinstance(one, Damage) for one in found):
        with pytest.raises(CorruptLog, match="onCorrupt=skip"):
            rows_of(options(root), ranges_of(store, every))


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.binary(max_size=900), st.booleans()), min_size=1, max_size=60),
    st.none() | st.integers(1, 2 * SEGMENT),
)
def test_a_stream_reads_every_record_once_while_the_log_grows(
    tmp_path_factory: pytest.TempPathFactory,
    content: list[tuple[bytes, bool]],
    bytes_max: int | None,
) -> None:
    root = tmp_path_factory.mktemp("log") / "store"
    writer = LogWriter(root)
    writer.append(b"first")
    writer.save()
    told = options(root)
    reader = LogStreamReader(told, SCHEMA)
    position = reader.initialOffset()
    limit = ReadAllAvailable() if bytes_max is None else ReadMaxBytes(bytes_max)
    rows: list[tuple[Any, ...]] = []
    for body, looks in [*content, (b"last", True)]:
        writer.append(body)
        if not looks:
            continue
        writer.save()
        while (end := reader.latestOffset(position, limit)) != position:
            assert reader.partitions(position, end) == reader.partitions(position, end)
            for work in reader.partitions(position, end):
                rows += rows_of(told, work.ranges)
            position = end
    assert rows == writer.written


# --- what is left out -----------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> LogWriter:
    writer = LogWriter(tmp_path / "store")
    for number in range(200):
        writer.append(b"x" * 400, "Orders" if number % 3 else "Paid")
    writer.save()
    return writer


def test_topics_are_chosen_by_name_or_pattern(store: LogWriter) -> None:
    everything = ranges_of(store.save(), 3000)
    paid = [row for row in store.written if row[1] == "Paid"]
    assert rows_of(options(store.root, subscribe="Paid, Other"), everything) == paid
    assert rows_of(options(store.root, subscribePattern="P.*d"), everything) == paid
    assert rows_of(options(store.root, subscribePattern="P"), everything) == []


def test_a_span_of_time_is_exact_and_spares_files_and_ranges(store: LogWriter) -> None:
    begin, end = START_MS + 10 * 90, START_MS + 10 * 110
    told = options(store.root, startingTimestamp=begin, endingTimestamp=end)
    directory = store.save()
    ranges = plan_ranges(
        [directory], span=told.span, lenient=False, min_partitions=1, range_bytes=900
    )
    assert rows_of(told, ranges) == store.written[89:109]
    # A clock may step back a minute; this log is shorter than that, so nothing can be spared.
    assert len(LogPlan(directory, span=told.span, lenient=False).files) == len(directory.log_files)
    far = Span(START_MS + 3_600_000, START_MS + 7_200_000)
    (last,) = LogPlan(directory, span=far, lenient=False).files
    assert last == directory.log_files[-1]
    early = Span(START_MS - 7_200_000, START_MS - 3_600_000)
    assert LogPlan(directory, span=early, lenient=False).files == []


def test_only_the_columns_of_the_schema_are_made(store: LogWriter) -> None:
    schema = StructType().add("file", "string").add("recordSize", "integer").add("broker", "string")
    rows = rows_of(options(store.root), ranges_of(store.save(), 1 << 30), schema)
    at, topic, body = store.written[-1]
    path = store.root / "commitlog" / f"{at - at % SEGMENT:020d}"
    assert rows[-1] == (str(path), 91 + len(body) + len(topic), None)
    assert len(rows) == 200


def test_damage_is_a_row_where_a_column_asks_for_it(store: LogWriter) -> None:
    at = store.written[100][0]
    store.log[at + BODY_AT] ^= 1
    directory = store.save()
    schema = StructType().add("physicalOffset", "long").add("corrupt", "string")
    told = options(store.root, onCorrupt="skip")
    rows = rows_of(told, ranges_of(directory, 3000, lenient=True), schema)
    (corrupt,) = [row for row in rows if row[1] is not None]
    assert corrupt[0] == at
    assert corrupt[1].startswith(f"C3 commitlog {at}: ")
    assert len(rows) == 200


def test_bodies_are_those_that_applications_see(tmp_path: Path) -> None:
    sample = sample_store(tmp_path / "store")
    told = LogOptions.parse({"path": str(sample.root)}, streaming=False)
    schema = StructType().add("topic", "string").add("offset", "long").add("body", "binary")
    ranges = plan_ranges(
        open_stores(str(sample.root), Shape()),
        span=Span(),
        lenient=False,
        min_partitions=1,
        range_bytes=None,
    )
    rows = rows_of(told, ranges, schema)
    assert [row[1:] for row in rows if row[0] == "Batches"] == [
        (0, b"one"),
        (1, b"two"),
        (2, b"three"),
        (3, b"alone"),
    ]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "'path' is missing"),
        ({"path": "/x", "onCorupt": "skip"}, "did you mean 'onCorrupt'"),
        ({"path": "/x", "onCorrupt": "maybe"}, "fail, skip"),
        ({"path": "/x", "subscribe": "a", "subscribePattern": "b"}, "exclude each other"),
        ({"path": "/x", "subscribePattern": "("}, "'subscribePattern'"),
        ({"path": "/x", "subscribe": " , "}, "names of topics"),
        ({"path": "/x", "minPartitions": "0"}, "from 1 on"),
        ({"path": "/x", "startingTimestamp": "9", "endingTimestamp": "9"}, "endingTimestamp"),
        ({"path": "/x", "config": "/no/such.conf"}, "cannot be read"),
        ({"path": "/x", "maxBytesPerTrigger": "1"}, "has no effect here"),
    ],
)
def test_options_that_make_no_sense_are_named(given: dict[str, str], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        LogOptions.parse(given, streaming=False)


def test_columns_that_do_not_exist_are_named(store: LogWriter) -> None:
    with pytest.raises(SchemaError, match=r"'commitlog' has no column 'nosuch'.*recordSize"):
        LogReader(options(store.root), StructType().add("nosuch", "string"))
    with pytest.raises(SchemaError, match="is int, not bigint"):
        LogReader(options(store.root), StructType().add("recordSize", "long"))


def test_paths_without_a_store_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such directory"):
        open_stores(str(tmp_path / "nowhere"), SHAPE)
    with pytest.raises(ConfigError, match="not a store directory"):
        open_stores(str(tmp_path), SHAPE)
    for name in ("a", "b", "c,d"):
        (tmp_path / "many" / name / "commitlog").mkdir(parents=True)
    assert len(open_stores(f"{tmp_path}/many/*", SHAPE)) == 3
    assert len(open_stores(f"{tmp_path}/many/a, {tmp_path}/many/b", SHAPE)) == 2
    assert len(open_stores(f"{tmp_path}/many/c,d", SHAPE)) == 1


def test_a_file_that_cannot_be_read_is_named_and_can_be_left_out(store: LogWriter) -> None:
    directory = store.save()
    path = directory.log_files[1].path
    path.unlink()
    path.symlink_to(path)  # root may read everything, but not this
    with pytest.raises(ConfigError, match=f"{path} cannot be read"):
        ranges_of(directory, 1 << 30)
    told = options(store.root, onCorrupt="skip")
    rows = rows_of(told, ranges_of(directory, 1 << 30, lenient=True))
    lost = range(SEGMENT, 2 * SEGMENT)
    assert rows == [row for row in store.written if row[0] not in lost]


def test_a_file_that_goes_while_it_is_read_is_named(store: LogWriter) -> None:
    ranges = ranges_of(store.save(), 1 << 30)
    Path(ranges[0].path).unlink()
    with pytest.raises(CorruptLog, match="deleted meanwhile"):
        rows_of(options(store.root), ranges)


def test_a_stream_whose_files_are_gone_says_so(store: LogWriter) -> None:
    directory = store.save()
    directory.log_files[0].path.unlink()
    position = {str(store.root): 0}
    with pytest.raises(DataLoss, match="failOnDataLoss=false"):
        LogStreamReader(options(store.root), SCHEMA).latestOffset(position, ReadAllAvailable())
    lenient = LogStreamReader(options(store.root, failOnDataLoss="false"), SCHEMA)
    end = lenient.latestOffset(position, ReadAllAvailable())
    told = options(store.root)
    rows = [row for work in lenient.partitions(position, end) for row in rows_of(told, work.ranges)]
    assert rows == [row for row in store.written if row[0] >= SEGMENT]
