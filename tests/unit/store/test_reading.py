"""Status, next offset and limits of reads: what consumers depend on to the number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.stores import ASYNC, bodies, message, open_store, put_all, read_all, records_of

from firearrow.hot import decode_record, java_hash
from firearrow.store.reading import Status

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.store.store import MessageStore

CODES = {tag: java_hash(tag) for tag in ("red", "blue")}


async def test_offsets_outside_a_queue_get_the_status_and_place_of_rocketmq(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        assert store.get("nowhere", 0, 5, 32).status is Status.NO_MATCHED_LOGIC_QUEUE
        await put_all(store, (message() for _ in range(3)))
        for offset, status, next_offset in [
            (3, Status.OFFSET_OVERFLOW_ONE, 3),
            (4, Status.OFFSET_OVERFLOW_BADLY, 3),
            (99, Status.OFFSET_OVERFLOW_BADLY, 3),
            (-1, Status.OFFSET_TOO_SMALL, 0),
        ]:
            got = store.get("orders", 0, offset, 32)
            assert (got.status, got.next_offset) == (status, next_offset), offset
            assert (got.min_offset, got.max_offset, got.count) == (0, 3, 0)


async def test_a_queue_without_messages_says_so(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        end = store.put(message())
        assert store.get("orders", 0, 0, 32).status is Status.NO_MESSAGE_IN_QUEUE
        await store.wait_flushed(end)


async def test_a_read_is_bounded_by_count_bytes_and_the_end_of_a_queue_file(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_transfer_bytes_on_message_in_memory": 1_000}
    async with open_store(tmp_path, mapped_file_size_consume_queue=2000, **limits) as store:
        await put_all(store, (message(bytes(100)) for _ in range(120)))
        size = 91 + 6 + 100
        assert store.get("orders", 0, 0, 3).count == 3
        got = store.get("orders", 0, 0, 32)
        assert (got.count, got.size, got.next_offset) == (1_000 // size, 5 * size, 5)
        assert store.get("orders", 0, 98, 32).count == 2  # a read never crosses a queue file


async def test_one_message_larger_than_the_limit_is_still_delivered(tmp_path: Path) -> None:
    async with open_store(tmp_path, max_transfer_bytes_on_message_in_memory=10) as store:
        await put_all(store, [message(bytes(2_000)), message(b"small")])
        assert store.get("orders", 0, 0, 32).count == 1
        assert len(read_all(store)) == 2


async def test_at_most_32_messages_come_at_once_and_8_from_the_disk(tmp_path: Path) -> None:
    async with open_store(tmp_path, mapped_file_size_consume_queue=2_000) as store:
        await put_all(store, (message() for _ in range(60)))
        assert store.get("orders", 0, 0, 64).count == 32
        assert store.get("orders", 0, 0, 64).cold is False
    far: dict[str, Any] = {"access_message_in_memory_max_ratio": 0}
    async with open_store(tmp_path, mapped_file_size_consume_queue=2_000, **far) as store:
        got = store.get("orders", 0, 0, 64)
        assert (got.count, got.cold) == (8, True)


@pytest.mark.parametrize("settings", [{}, ASYNC])
async def test_tags_are_filtered_by_hash_and_the_next_offset_moves_on(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with open_store(tmp_path, mapped_file_size_consume_queue=40_000, **settings) as store:
        tags = ["red", "blue", "", "red"] * 10
        await put_all(store, (message(tag.encode(), tags=tag) for tag in tags))
        red = read_all(store, codes={CODES["red"]})
        assert bodies(red) == [b"red"] * 20
        assert len(read_all(store, codes={CODES["red"], CODES["blue"]})) == 30
        got = store.get("orders", 0, 1, 32, codes={12345})
        assert (got.status, got.count, got.next_offset) == (Status.NO_MATCHED_MESSAGE, 0, 40)


async def test_at_most_800_entries_are_looked_at_per_read(tmp_path: Path) -> None:
    async with open_store(tmp_path, mapped_file_size_consume_queue=40_000, **ASYNC) as store:
        await put_all(store, (message(b"", tags="blue") for _ in range(900)))
        got = store.get("orders", 0, 0, 32, codes={CODES["red"]})
        assert (got.status, got.next_offset) == (Status.NO_MATCHED_MESSAGE, 800)


async def test_records_can_be_chosen_by_their_content(tmp_path: Path) -> None:
    async with open_store(tmp_path, mapped_file_size_consume_queue=40_000) as store:
        await put_all(store, (message(b"%d" % n) for n in range(20)))
        got = store.get(
            "orders", 0, 0, 5, wanted=lambda record: decode_record(record).body.endswith(b"7")
        )
        assert (bodies(records_of(got)), got.next_offset) == ([b"7", b"17"], 20)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"access_message_in_memory_max_ratio": 0},
        {"max_transfer_bytes_on_message_in_memory": 500},
        {"mapped_file_size_consume_queue": 200},
    ],
)
async def test_a_filter_that_wants_everything_gets_what_no_filter_gets(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Also of records in several files, written before a restart, or spoiled."""
    asked = [(offset, count) for offset in range(0, 60, 7) for count in (0, 1, 10, 100)]
    for start in range(2):
        async with open_store(tmp_path, **settings) as store:
            tags = ["red", "blue", ""] * 10
            await put_all(store, (message(b"body", tags=tag) for tag in tags))
            for codes in (None, {CODES["red"]}):
                for offset, count in asked:
                    plain = store.get("orders", 0, offset, count, codes=codes)
                    looked = store.get(
                        "orders", 0, offset, count, codes=codes, wanted=lambda _: True
                    )
                    assert (looked.status, looked.count, looked.size, looked.next_offset) == (
                        plain.status,
                        plain.count,
                        plain.size,
                        plain.next_offset,
                    )
                    assert b"".join(looked.slices) == b"".join(plain.slices)
                    assert looked.cold == plain.cold
            if start == 0:
                await spoil(store, tmp_path, 12)


async def test_neighbours_in_the_log_share_one_slice_and_no_byte_is_copied(tmp_path: Path) -> None:
    async with open_store(tmp_path, mapped_file_size_consume_queue=2_000) as store:
        await put_all(store, (message(b"same") for _ in range(5)))
        got = store.get("orders", 0, 0, 32)
        assert (len(got.slices), got.count) == (1, 5)
        assert got.slices[0].obj is not None
        assert len(got.slices[0]) == got.size


async def spoil(store: MessageStore, tmp_path: Path, offset: int) -> None:
    """Flip a bit in the body of a message, in the file, as a bad disk would."""
    record = store.lookup.by_queue_offset("orders", 0, offset)
    assert record is not None
    place = record.physical_offset
    path = tmp_path / "commitlog" / f"{place // 4096 * 4096:020d}"
    with path.open("r+b") as file:
        file.seek(place % 4096 + 88)
        byte = file.read(1)[0]
        file.seek(place % 4096 + 88)
        file.write(bytes([byte ^ 1]))


async def test_bytes_that_the_disk_has_spoiled_are_never_served(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put_all(store, (message(b"message %d" % n) for n in range(12)))
        await spoil(store, tmp_path, 7)
    async with open_store(tmp_path) as store:
        offsets = [record.queue_offset for record in read_all(store)]
        assert offsets == [n for n in range(12) if n != 7]
        got = store.get("orders", 0, 7, 1)
        assert ([r.queue_offset for r in records_of(got)], got.next_offset) == ([8], 9)
        assert store.lookup.by_queue_offset("orders", 0, 7) is None


async def test_a_queue_whose_last_message_is_spoiled_says_removing(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put_all(store, (message(b"message %d" % n) for n in range(3)))
        await spoil(store, tmp_path, 2)
    async with open_store(tmp_path) as store:
        got = store.get("orders", 0, 2, 32)
        assert (got.status, got.count, got.next_offset) == (Status.MESSAGE_WAS_REMOVING, 0, 3)


async def test_a_spoiled_queue_entry_is_mended_from_the_log(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put_all(store, (message(b"message %d" % n) for n in range(23)))
    path = tmp_path / "consumequeue" / "orders" / "0" / f"{100:020d}"
    content = bytearray(path.read_bytes())
    content[20:60] = bytes(40)
    content[7] ^= 1
    path.write_bytes(content)
    async with open_store(tmp_path) as store:
        assert [record.queue_offset for record in read_all(store)] == list(range(23))
    async with open_store(tmp_path) as store:  # and it stays mended
        assert [record.queue_offset for record in read_all(store)] == list(range(23))
    assert path.read_bytes()[20:40] != bytes(20)


async def test_what_was_warmed_is_read_as_if_it_were_new(tmp_path: Path) -> None:
    far: dict[str, Any] = {"access_message_in_memory_max_ratio": 0}
    far["mapped_file_size_consume_queue"] = 2_000
    async with open_store(tmp_path, mapped_file_size_commit_log=8192, **far) as store:
        await put_all(store, (message(bytes(100)) for _ in range(120)))
        assert store.warming.is_cold("orders", 0, 0)
        pieces = await store.warming.warm("orders", 0, 0, 32)
        assert store.get("orders", 0, 0, 64).count == 8
        store.warming.warmed(pieces)
        assert not store.warming.is_cold("orders", 0, 0)
        got = store.get("orders", 0, 0, 64)
        assert (got.count, got.cold) == (32, True)  # far behind still: a slave could serve it
        assert len(read_all(store)) == 120


async def test_cold_messages_can_be_warmed_without_blocking(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put_all(store, (message(b"message %d" % n) for n in range(30)))
    async with open_store(tmp_path) as store:
        await store.warming.warm("orders", 0, 0, 32)
        await store.warming.warm("orders", 0, 1_000, 32)
        await store.warming.warm("nowhere", 0, 0, 32)
        assert len(read_all(store)) == 30
