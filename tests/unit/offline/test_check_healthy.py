"""What looks odd and is healthy: the checker has nothing to say about it."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.store_builder import START_MS, StoreBuilder, patch, sample_store, write_json

from firearrow.hot import Record, encode_record, java_hash
from firearrow.offline.check import check
from firearrow.offline.rebuild import rebuild
from firearrow.store.checkpoint import Checkpoint
from firearrow.store.consume_queue import ENTRY as UNIT
from firearrow.store.key_index import HEADER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.store_builder import Sample

    from firearrow.offline.check import Report

NOW_MS = START_MS + 86_400_000

# Takes the lock as a broker does, says so, and waits for its standard input to end.
BROKER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("running", flush=True)
sys.stdin.read()
"""


def report_on(sample: Sample | StoreBuilder) -> Report:
    return check(sample.open(), now_ms=NOW_MS)


def crash(sample: Sample, *, checkpoint: Checkpoint | None = None) -> None:
    (sample.root / "abort").write_text("4711")
    (sample.root / "checkpoint").write_bytes((checkpoint or Checkpoint()).encode())


def test_a_store_with_something_of_everything_is_sound(tmp_path: Path) -> None:
    report = report_on(sample_store(tmp_path))
    assert (report.findings, report.notes) == ([], [])
    assert report.records == 40
    assert report.queues == 9
    assert report.index_entries == 50


def test_a_topic_that_was_deleted_and_made_again_is_sound(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for number in range(20):
        builder.append("Gone", number % 4)
    builder.forget("Gone")
    for _ in range(3):
        builder.append("Gone", 1)
    builder.topic("Gone", 4)
    builder.close()
    assert sorted(p.name for p in (tmp_path / "consumequeue/Gone").iterdir()) == ["1"]
    assert report_on(builder).findings == []


def test_a_topic_that_was_deleted_may_leave_records(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append("Kept")
    builder.append("Gone")
    del builder.topics["Gone"]
    builder.close()
    assert not (tmp_path / "consumequeue/Gone").exists()
    assert report_on(builder).findings == []


def test_the_front_of_a_log_may_be_gone(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    for queue in ("0", "1"):
        (tmp_path / "consumequeue/Orders" / queue / f"{0:020d}").unlink()
    report = report_on(sample)
    assert report.findings == []
    assert report.min_offset == 2048


def test_a_queue_whose_messages_are_all_gone_is_sound(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    (tmp_path / "abort").touch()  # or the leading files of Orders would be a finding
    assert (tmp_path / "consumequeue/RMQ_SYS_TRANS_HALF_TOPIC/0").exists()
    assert sample.half.offset < 2048
    assert report_on(sample).findings == []


def test_a_crashed_store_may_lack_its_newest_units(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    crash(sample)
    sample.patch_unit("Orders/0", sample.last.queue_offset, bytes(20))
    sample.patch_unit("Paid/1", 0, bytes(20))
    report = report_on(sample)
    assert report.findings == []
    assert "2 records are not in their queues yet" in report.notes
    assert "not closed cleanly" in report.notes[0]


def test_a_crashed_store_must_have_the_units_that_recovery_will_not_make(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    newest = sample.last.timestamp
    crash(sample, checkpoint=Checkpoint(newest, newest, 0))
    shutil.rmtree(tmp_path / "consumequeue/RMQ_SYS_TRANS_HALF_TOPIC")
    (finding,) = report_on(sample).findings
    assert (finding.code, finding.where) == ("Q5", "consumequeue/RMQ_SYS_TRANS_HALF_TOPIC/0")


def test_a_torn_record_behind_a_crashed_log_is_debris(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    crash(sample)
    end = sample.last.offset + sample.last.size
    torn = encode_record(
        Record("Orders", b"torn" * 20, physical_offset=end, store_timestamp=NOW_MS, queue_offset=16)
    )
    # From the topic's length on, nothing in a record tells what was written from what was not.
    for size in range(1, len(torn) - len("Orders") - 2):
        sample.patch_log(end, torn[:size])
        report = report_on(sample)
        assert report.findings == [], size
        assert report.end_offset == end
    assert f"debris behind the end of the log, at {end}" in report.notes[-1]


def test_records_from_before_a_cut_are_debris(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    end = sample.last.offset + sample.last.size
    stale = encode_record(
        Record("Orders", b"stale", physical_offset=end + 50, store_timestamp=START_MS)
    )
    sample.patch_log(end + 50, stale)
    report = report_on(sample)
    assert report.findings == []
    assert report.end_offset == end
    assert "debris" in report.notes[0]


def test_files_made_ahead_of_need_are_sound(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    start = max(int(path.name) for path in (tmp_path / "commitlog").iterdir()) + 2048
    (tmp_path / "commitlog" / f"{start:020d}").write_bytes(bytes(2048))
    (tmp_path / "commitlog" / f"{start + 2048:020d}").touch()
    assert report_on(sample).findings == []


def test_a_crash_in_the_middle_of_an_index_insert_is_sound(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    content = sample.index[-1].read_bytes()
    next_entry = HEADER.unpack_from(content)[5]
    slots = struct.unpack_from(">10i", content, HEADER.size)
    patch(sample.index[-1], HEADER.size + slots.index(0) * 4, struct.pack(">i", next_entry))
    assert {finding.code for finding in report_on(sample).findings} == {"I1"}
    crash(sample)
    assert report_on(sample).findings == []


def test_a_retried_transaction_that_lost_its_half_offset_is_sound(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append()
    builder.append("%RETRY%readers", sys_flag=0x8, properties={"RETRY_TOPIC": "Orders"})
    builder.close()
    assert report_on(builder).findings == []


def test_light_queues_are_checked_by_their_own_offsets(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    write = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    builder.append(properties=write | {"INNER_MULTI_QUEUE_OFFSET": "0,0"})
    builder.append(properties=write | {"INNER_MULTI_QUEUE_OFFSET": "1,1"})
    (tmp_path / "config").mkdir(parents=True)
    write_json(tmp_path, "lmqConsumerOffset", {"lmqOffsetTable": {"%LMQ%a@%LMQ%g": 2}})
    builder.close()
    assert (tmp_path / "consumequeue/%LMQ%a/0").is_dir()
    assert report_on(builder).findings == []
    patch(tmp_path / "consumequeue/%LMQ%b/0" / f"{0:020d}", 20, bytes(8))
    (finding,) = report_on(builder).findings
    assert (finding.code, finding.where) == ("Q1", "consumequeue/%LMQ%b/0 unit 1")


def test_a_tags_code_may_be_an_address_of_an_extended_unit(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    code = java_hash("Tag1")
    folder = tmp_path / "consumequeue_ext/Orders/1"
    folder.mkdir(parents=True)
    extended = struct.pack(">hqqh", 20, code, START_MS, 0)
    (folder / f"{0:020d}").write_bytes(bytes(40) + extended + bytes(40))
    address = struct.pack(">q", 40 - (1 << 63))
    sample.patch_unit("Orders/1", 0, address, at=12)  # the message with number 1
    assert report_on(sample).findings == []
    patch(folder / f"{0:020d}", 42, bytes(8))
    assert {finding.code for finding in report_on(sample).findings} == {"Q3"}


def test_rocksdb_queues_are_left_out_and_said_so(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue/CURRENT").write_text("MANIFEST-000004\n")
    report = report_on(sample)
    assert report.findings == []
    assert "RocksDB" in report.notes[0]


def test_a_running_store_is_judged_by_what_it_had_at_the_start(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    crash(sample)
    sample.patch_unit("Orders/1", 15, UNIT.pack(sample.last.offset + 5000, 100, 0))
    with subprocess.Popen(
        [sys.executable, "-c", BROKER, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "running\n"
        report = report_on(sample)
        broker.communicate("")
    assert report.findings == []
    assert "a broker is running here" in report.notes[0]
    assert {finding.code for finding in report_on(sample).findings} == {"Q2"}


def test_a_rebuilt_store_with_a_hole_in_its_log_has_findings_about_the_log_only(
    tmp_path: Path,
) -> None:
    sample = sample_store(tmp_path)
    sample.patch_log(sample.keyless.offset, bytes(sample.keyless.size))
    rebuild(sample.open())
    assert {finding.code for finding in report_on(sample).findings} == {"C2"}


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    report = check(StoreBuilder(tmp_path).open(), now_ms=NOW_MS)
    assert (report.findings, report.records) == ([], 0)
