"""Each rule broken alone: the checker names that rule, the place, and nothing else."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING

import pytest
from tests.store_builder import (
    SHAPE,
    START_MS,
    Sample,
    StoreBuilder,
    patch,
    sample_store,
    write_json,
)

from firearrow.offline.check import check
from firearrow.offline.findings import RULES
from firearrow.store.checkpoint import Checkpoint
from firearrow.store.consume_queue import ENTRY as UNIT
from firearrow.store.consume_queue import FILLER
from firearrow.store.key_index import HEADER, IndexHeader, index_file_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firearrow.offline.check import Report

NOW_MS = START_MS + 86_400_000
ENTRIES_AT = HEADER.size + 10 * 4  # of an index file with ten slots
SEGMENT_BYTES = 2048


def check_sample(sample: Sample) -> Report:
    return check(sample.open(), now_ms=NOW_MS)


# --- commit log -----------------------------------------------------------------------------------


def lose_a_log_file(sample: Sample) -> str:
    (sample.root / "commitlog" / f"{SEGMENT_BYTES:020d}").unlink()
    return "commitlog/00000000000000004096"


def shorten_a_log_file(sample: Sample) -> str:
    path = sample.root / "commitlog" / f"{SEGMENT_BYTES:020d}"
    path.write_bytes(path.read_bytes()[:1000])
    return "commitlog/00000000000000002048"


def write_into_a_file_behind_the_log(sample: Sample) -> str:
    starts = [int(path.name) for path in (sample.root / "commitlog").iterdir()]
    start = max(starts) + SEGMENT_BYTES
    content = bytes(500) + b"stray" + bytes(SEGMENT_BYTES - 505)
    (sample.root / "commitlog" / f"{start:020d}").write_bytes(content)
    return f"commitlog {start}"


def zero_a_record(sample: Sample) -> str:
    sample.patch_log(sample.keyless.offset, bytes(sample.keyless.size))
    return f"commitlog {sample.keyless.offset}"


def overwrite_a_magic_code(sample: Sample) -> str:
    sample.patch_log(sample.op.offset + 4, b"oops")
    return f"commitlog {sample.op.offset}"


def flip_a_bit_of_a_body(sample: Sample) -> str:
    sample.patch_log(sample.keyless.offset + 88, b"N")
    return f"commitlog {sample.keyless.offset}"


def flip_a_bit_of_the_last_body(sample: Sample) -> str:
    sample.patch_log(sample.last.offset + 88, b"L")
    return f"commitlog {sample.last.offset}"


def move_a_record_elsewhere(sample: Sample) -> str:
    sample.patch_log(sample.commit.offset + 28, struct.pack(">q", 12345))
    return f"commitlog {sample.commit.offset}"


def blank_at(sample: Sample) -> int:
    return sample.builder.log.index(b"\xcb\xd4\x31\x94") - 4


def remove_a_blank(sample: Sample) -> str:
    sample.patch_log(blank_at(sample), bytes(8))
    return f"commitlog {blank_at(sample)}"


def change_the_size_of_a_blank(sample: Sample) -> str:
    sample.patch_log(blank_at(sample), struct.pack(">i", 8))
    return f"commitlog {blank_at(sample)}"


def forget_a_store_time(sample: Sample) -> str:
    sample.patch_log(sample.keyless.offset + 56, bytes(8))
    return f"commitlog {sample.keyless.offset}"


def turn_the_clock_back(sample: Sample) -> str:
    earlier = sample.keyless.timestamp - 3_600_000
    sample.patch_log(sample.keyless.offset + 56, struct.pack(">q", earlier))
    return f"commitlog {sample.keyless.offset}"


def point_a_commit_to_no_half(sample: Sample) -> str:
    sample.patch_log(sample.commit.offset + 76, struct.pack(">q", sample.timed.size + 1))
    return f"commitlog {sample.commit.offset}"


def point_a_commit_to_another_record(sample: Sample) -> str:
    sample.patch_log(sample.commit.offset + 76, struct.pack(">q", sample.keyless.offset))
    return f"commitlog {sample.commit.offset}"


def change_the_destination_of_a_half(sample: Sample) -> str:
    at = sample.builder.log.index(b"REAL_QID\x011", sample.half.offset)
    sample.patch_log(at, b"REAL_QID\x010")
    return f"commitlog {sample.commit.offset}"


def change_a_field_that_a_checksum_covers(sample: Sample) -> str:
    sample.patch_log(sample.checked.offset + 16, struct.pack(">i", 7))
    return f"commitlog {sample.checked.offset}"


# --- consume queues -------------------------------------------------------------------------------


def point_a_unit_back(sample: Sample) -> str:
    sample.patch_unit("Orders/0", 7, struct.pack(">q", 3))
    return "consumequeue/Orders/0 unit 7"


def point_a_unit_forward(sample: Sample) -> str:
    sample.patch_unit("Orders/0", 7, struct.pack(">q", sample.last.offset - 9))
    return "consumequeue/Orders/0 unit 7"


def change_the_size_in_a_unit(sample: Sample) -> str:
    sample.patch_unit("Orders/0", 7, struct.pack(">i", 91), at=8)
    return "consumequeue/Orders/0 unit 7"


def lengthen_a_queue_file(sample: Sample) -> str:
    with (sample.root / "consumequeue/Orders/1" / f"{100:020d}").open("ab") as file:
        file.write(bytes(20))
    return "consumequeue/Orders/1/00000000000000000100"


def change_the_base_of_a_batch_unit(sample: Sample) -> str:
    path = sample.root / "batchconsumequeue/Batches/0" / f"{0:020d}"
    patch(path, 46 + 28, struct.pack(">q", 5))
    return "batchconsumequeue/Batches/0 unit 1"


def add_a_unit_behind_the_log(sample: Sample) -> str:
    sample.patch_unit("Orders/1", 15, UNIT.pack(sample.last.offset + 5000, 100, 0))
    return "consumequeue/Orders/1 unit 15"


def point_a_unit_behind_the_log(sample: Sample) -> str:
    sample.patch_unit("Orders/0", 7, struct.pack(">q", 1 << 40))
    return "consumequeue/Orders/0 unit 7"


def add_a_batch_unit_behind_the_log(sample: Sample) -> str:
    path = sample.root / "batchconsumequeue/Batches/0" / f"{0:020d}"
    patch(path, 2 * 46, struct.pack(">qiqqqhii", 1 << 40, 100, 0, 1, 4, 1, -1, 0))
    return "batchconsumequeue/Batches/0 unit 2"


def change_a_tags_code(sample: Sample) -> str:
    sample.patch_unit("Orders/1", 4, struct.pack(">q", 99), at=12)
    return "consumequeue/Orders/1 unit 4"


def change_a_time_of_delivery(sample: Sample) -> str:
    sample.patch_unit("SCHEDULE_TOPIC_XXXX/2", 0, struct.pack(">q", START_MS), at=12)
    return "consumequeue/SCHEDULE_TOPIC_XXXX/2 unit 0"


def change_the_tags_code_of_a_batch_unit(sample: Sample) -> str:
    path = sample.root / "batchconsumequeue/Batches/0" / f"{0:020d}"
    patch(path, 12, struct.pack(">q", 99))
    return "batchconsumequeue/Batches/0 unit 0"


def put_filler_in_the_place_of_a_message(sample: Sample) -> str:
    sample.patch_unit("Orders/0", 7, FILLER)
    return "consumequeue/Orders/0 unit 7"


def put_filler_behind_a_queue(sample: Sample) -> str:
    sample.patch_unit("Orders/1", 15, FILLER)
    return "consumequeue/Orders/1 unit 15"


def erase_units(sample: Sample) -> str:
    sample.patch_unit("Orders/0", 6, bytes(40))
    return "consumequeue/Orders/0"


def lose_a_queue(sample: Sample) -> str:
    shutil.rmtree(sample.root / "consumequeue/Paid/1")
    return "consumequeue/Paid/1"


def erase_a_batch_unit(sample: Sample) -> str:
    path = sample.root / "batchconsumequeue/Batches/0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[46:] + bytes(46))
    return "batchconsumequeue/Batches/0"


def lose_the_first_file_of_a_queue(sample: Sample) -> str:
    (sample.root / "consumequeue/Orders/0" / f"{0:020d}").unlink()
    return "consumequeue/Orders/0"


def add_a_unit_that_has_no_record(sample: Sample) -> str:
    sample.patch_unit("Orders/1", 15, UNIT.pack(sample.op.offset, sample.op.size, 0))
    return "consumequeue/Orders/1 unit 15"


def expire_messages_but_not_their_units(sample: Sample) -> str:
    (sample.root / "commitlog" / f"{0:020d}").unlink()
    return "consumequeue/Orders/0/00000000000000000000"


# --- index ----------------------------------------------------------------------------------------


def break_a_chain(sample: Sample) -> str:
    patch(sample.index[1], ENTRIES_AT + 3 * 20 + 16, struct.pack(">i", 6))
    return f"index/{sample.index[1].name} entry 3"


def change_the_count_of_slots(sample: Sample) -> str:
    patch(sample.index[1], 32, struct.pack(">i", 1))
    return f"index/{sample.index[1].name}"


def empty_a_slot(sample: Sample) -> str:
    content = sample.index[1].read_bytes()
    slots = struct.unpack_from(">10i", content, HEADER.size)
    used = next(number for number, newest in enumerate(slots) if newest)
    header = IndexHeader._make(HEADER.unpack_from(content))
    patch(sample.index[1], 0, HEADER.pack(*header._replace(slots_used=header.slots_used - 1)))
    patch(sample.index[1], HEADER.size + used * 4, bytes(4))
    return f"index/{sample.index[1].name}"


def cut_an_index_file(sample: Sample) -> str:
    sample.index[1].write_bytes(sample.index[1].read_bytes()[:30])
    return f"index/{sample.index[1].name}"


def change_a_hash_within_its_slot(sample: Sample) -> str:
    at = ENTRIES_AT + 3 * 20
    (hashed,) = struct.unpack_from(">i", sample.index[1].read_bytes(), at)
    patch(sample.index[1], at, struct.pack(">i", hashed - 10))
    return f"index/{sample.index[1].name} entry 3"


def point_an_entry_between_records(sample: Sample) -> str:
    at = ENTRIES_AT + 3 * 20 + 4
    (offset,) = struct.unpack_from(">q", sample.index[1].read_bytes(), at)
    patch(sample.index[1], at, struct.pack(">q", offset + 1))
    return f"index/{sample.index[1].name} entry 3"


def point_an_entry_out_of_its_file(sample: Sample) -> str:
    patch(sample.index[1], ENTRIES_AT + 3 * 20 + 4, struct.pack(">q", 1 << 40))
    return f"index/{sample.index[1].name} entry 3"


def change_the_time_of_an_entry(sample: Sample) -> str:
    patch(sample.index[1], ENTRIES_AT + 3 * 20 + 12, struct.pack(">i", 500))
    return f"index/{sample.index[1].name} entry 3"


def swap_two_index_files(sample: Sample) -> str:
    first, second = sample.index[1], sample.index[2]
    between = first.with_name("between")
    first.rename(between)
    second.rename(first)
    between.rename(second)
    return f"index/{second.name}"


def begin_an_index_file_too_early(sample: Sample) -> str:
    not_full = sample.index[-1]
    new = not_full.with_name(str(int(not_full.name) + 1))
    content = HEADER.pack(0, 0, 0, 0, 0, 1).ljust(index_file_bytes(10, 8), b"\0")
    new.write_bytes(content)
    return f"index/{not_full.name}"


# --- offsets and the rest -------------------------------------------------------------------------


def consume_more_than_there_is(sample: Sample) -> str:
    write_json(sample.root, "consumerOffset", {"offsetTable": {"Orders@readers": {"0": 99}}})
    return "config/consumerOffset.json"


def break_the_consumer_offsets(sample: Sample) -> str:
    (sample.root / "config/consumerOffset.json").write_text('{"offsetTable":')
    return "config/consumerOffset.json"


def deliver_more_than_was_delayed(sample: Sample) -> str:
    write_json(sample.root, "delayOffset", {"offsetTable": {"3": 5}})
    return "config/delayOffset.json"


def check_more_halves_than_there_are(sample: Sample) -> str:
    offsets = {"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 9}}
    write_json(sample.root, "consumerOffset", {"offsetTable": offsets})
    return "config/consumerOffset.json"


def let_the_log_checkpoint_run_ahead(sample: Sample) -> str:
    ahead = Checkpoint(sample.last.timestamp + 10_000, sample.last.timestamp, 0)
    (sample.root / "checkpoint").write_bytes(ahead.encode())
    return "checkpoint"


def confirm_more_than_the_log_holds(sample: Sample) -> str:
    checkpoint = Checkpoint(0, 0, 0, 0, sample.last.offset + sample.last.size + 1)
    (sample.root / "checkpoint").write_bytes(checkpoint.encode())
    return "checkpoint"


def forget_a_topic_that_has_queues(sample: Sample) -> str:
    topics = {name: config for name, config in sample.builder.topics.items() if name != "Paid"}
    write_json(sample.root, "topics", {"topicConfigTable": topics})
    return "consumequeue/Paid/1"


def take_queues_from_a_topic(sample: Sample) -> str:
    sample.builder.topic("Orders", 1)
    write_json(sample.root, "topics", {"topicConfigTable": sample.builder.topics})
    return "consumequeue/Orders/1"


def point_a_timer_slot_between_entries(sample: Sample) -> str:
    content = (sample.root / "timerwheel").read_bytes()
    slot = next(at for at in range(0, len(content), 32) if any(content[at : at + 32]))
    patch(sample.root / "timerwheel", slot + 16, struct.pack(">q", 7))
    return f"timerwheel slot {slot // 32}"


def change_when_a_timer_entry_is_due(sample: Sample) -> str:
    slot = change_nothing_in_the_wheel(sample)
    second = struct.pack(">iqiqiqiiq", 52, 0, 1, START_MS, 59_000, sample.timed.offset, 1, 0, 0)
    patch(sample.root / "timerlog" / f"{0:020d}", 52, second)
    patch(sample.root / "timerwheel", slot * 32 + 16, struct.pack(">q", 52))
    patch(sample.root / "timerlog" / f"{0:020d}", 104, second[:4] + bytes(48))
    # Two slots agree on how long a second is; this entry does not.
    other = (slot + 5) % 100
    due_s = START_MS // 1000 + 65
    first = struct.pack(">iqiqiqiiq", 52, -1, 1, START_MS, 65_000, sample.timed.offset, 1, 0, 0)
    patch(sample.root / "timerlog" / f"{0:020d}", 156, first)
    patch(sample.root / "timerwheel", other * 32, struct.pack(">qqqii", due_s, 156, 156, 1, 0))
    return f"timerwheel slot {slot}"


def change_nothing_in_the_wheel(sample: Sample) -> int:
    content = (sample.root / "timerwheel").read_bytes()
    return next(at for at in range(0, len(content), 32) if any(content[at : at + 32])) // 32


def point_a_timer_entry_to_another_topic(sample: Sample) -> str:
    patch(sample.root / "timerlog" / f"{0:020d}", 28, struct.pack(">q", sample.half.offset))
    return f"timerwheel slot {change_nothing_in_the_wheel(sample)}"


def lose_the_timer_log(sample: Sample) -> str:
    (sample.root / "timerlog" / f"{0:020d}").unlink()
    return f"timerwheel slot {change_nothing_in_the_wheel(sample)}"


def stop_before_the_last_dispatch(sample: Sample) -> str:
    sample.patch_unit("Orders/0", sample.last.queue_offset, bytes(20))
    return "consumequeue"


BREAKS: list[tuple[str, Callable[[Sample], str]]] = [
    ("C1", lose_a_log_file),
    ("C1", shorten_a_log_file),
    ("C1", write_into_a_file_behind_the_log),
    ("C2", zero_a_record),
    ("C2", overwrite_a_magic_code),
    ("C3", flip_a_bit_of_a_body),
    ("C3", flip_a_bit_of_the_last_body),
    ("C3", move_a_record_elsewhere),
    ("C4", remove_a_blank),
    ("C4", change_the_size_of_a_blank),
    ("C5", forget_a_store_time),
    ("C5", turn_the_clock_back),
    ("C8", point_a_commit_to_no_half),
    ("C8", point_a_commit_to_another_record),
    ("C8", change_the_destination_of_a_half),
    ("C9", change_a_field_that_a_checksum_covers),
    ("Q1", point_a_unit_back),
    ("Q1", point_a_unit_forward),
    ("Q1", change_the_size_in_a_unit),
    ("Q1", lengthen_a_queue_file),
    ("Q1", change_the_base_of_a_batch_unit),
    ("Q2", add_a_unit_behind_the_log),
    ("Q2", point_a_unit_behind_the_log),
    ("Q2", add_a_batch_unit_behind_the_log),
    ("Q3", change_a_tags_code),
    ("Q3", change_a_time_of_delivery),
    ("Q3", change_the_tags_code_of_a_batch_unit),
    ("Q4", put_filler_in_the_place_of_a_message),
    ("Q4", put_filler_behind_a_queue),
    ("Q5", erase_units),
    ("Q5", lose_a_queue),
    ("Q6", lose_the_first_file_of_a_queue),
    ("Q6", erase_a_batch_unit),
    ("Q6", add_a_unit_that_has_no_record),
    ("Q7", expire_messages_but_not_their_units),
    ("I1", break_a_chain),
    ("I1", change_the_count_of_slots),
    ("I1", empty_a_slot),
    ("I1", cut_an_index_file),
    ("I2", change_a_hash_within_its_slot),
    ("I2", point_an_entry_between_records),
    ("I2", point_an_entry_out_of_its_file),
    ("I3", change_the_time_of_an_entry),
    ("I4", swap_two_index_files),
    ("I4", begin_an_index_file_too_early),
    ("O1", consume_more_than_there_is),
    ("O1", break_the_consumer_offsets),
    ("O2", deliver_more_than_was_delayed),
    ("O3", check_more_halves_than_there_are),
    ("O4", let_the_log_checkpoint_run_ahead),
    ("O4", confirm_more_than_the_log_holds),
    ("O5", forget_a_topic_that_has_queues),
    ("O5", take_queues_from_a_topic),
    ("O6", point_a_timer_slot_between_entries),
    ("O6", change_when_a_timer_entry_is_due),
    ("O6", point_a_timer_entry_to_another_topic),
    ("O6", lose_the_timer_log),
    ("O9", stop_before_the_last_dispatch),
]


@pytest.mark.parametrize(
    ("code", "break_it"), BREAKS, ids=[f"{code}-{how.__name__}" for code, how in BREAKS]
)
def test_a_broken_rule_is_named_alone_and_with_its_place(
    code: str, break_it: Callable[[Sample], str], tmp_path: Path
) -> None:
    sample = sample_store(tmp_path / "store")
    assert check_sample(sample).findings == []
    where = break_it(sample)
    report = check_sample(sample)
    assert {finding.code for finding in report.findings} == {code}, report.findings
    assert report.findings[0].where == where


def test_every_rule_is_broken_by_some_test() -> None:
    # C6 and C7 need logs of their own; they are below.
    assert {code for code, _ in BREAKS} | {"C6", "C7"} == set(RULES)


def codes_of(builder: StoreBuilder, now_ms: int = NOW_MS) -> set[str]:
    return {finding.code for finding in check(builder.close(), now_ms=now_ms).findings}


def test_a_gap_in_queue_offsets_is_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append()
    builder.append(queue_offset=4)
    assert codes_of(builder) == {"C6"}


def test_a_prepared_record_with_a_queue_offset_is_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append()
    builder.append(sys_flag=0x4, queue_offset=1)
    assert codes_of(builder) == {"C7"}


def test_an_op_message_that_lists_no_offsets_is_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append("RMQ_SYS_TRANS_OP_HALF_TOPIC", body=b"3,x,")
    assert codes_of(builder) == {"O3"}


def test_a_delayed_message_that_was_delivered_early_is_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append("SCHEDULE_TOPIC_XXXX", 17, properties={"DELAY": "18"})
    builder.delayed = {"18": 1}
    store = builder.close()
    early, due = START_MS + 3_600_000, START_MS + 7_200_700
    assert {finding.code for finding in check(store, now_ms=early).findings} == {"O2"}
    assert check(store, now_ms=due).findings == []


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    at = sample.builder.log.index(b"Tag1")
    sample.patch_log(at, b"\xff")
    codes = {finding.code for finding in check_sample(sample).findings}
    assert codes == {"C3", "Q3"}  # the hash of the tag is another one, too


def test_neighbours_are_one_finding_with_a_count(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    sample.patch_unit("Orders/0", 6, bytes(60))
    (finding,) = check_sample(sample).findings
    assert (finding.code, finding.places) == ("Q5", 3)
    assert "queue offset 6 to 8" in finding.what


def test_so_much_damage_is_counted_and_not_listed(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, SHAPE)
    for _ in range(300):
        builder.append(sys_flag=0x4, queue_offset=1)
    findings = check(builder.close(), now_ms=NOW_MS).findings
    assert len(findings) == 101
    assert findings[-1].what == "and 200 more of this kind"


def test_offsets_in_java_json_are_read(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    text = '{"offsetTable":{"Orders@readers":{0:99,1:2\n\t}}}'
    (sample.root / "config/consumerOffset.json").write_text(text)
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    assert {finding.code for finding in check_sample(sample).findings} == {"O1"}


def test_a_broken_table_is_read_from_its_backup(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    path = sample.root / "config/topics.json"
    path.rename(path.with_name("topics.json.bak"))
    path.write_text('{"topicConfigTable":')
    assert check_sample(sample).findings == []
