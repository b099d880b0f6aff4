from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.store_builder import START_MS, StoreBuilder, sample_store

from firearrow.offline.dump import Selection, as_object, dump
from firearrow.offline.log_walk import Damage

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.offline.directory import StoreDirectory


def objects(store: StoreDirectory, **wanted: Any) -> list[dict[str, Any]]:
    found = []
    for message in dump(store, Selection(**wanted)):
        assert not isinstance(message, Damage)
        found.append(as_object(message))
    return found


def test_every_message_is_shown_in_the_order_of_the_log(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    found = objects(sample.open())
    offsets = [each["physicalOffset"] for each in found]
    assert sorted(set(offsets)) == [each.offset for each in sample.builder.stored]
    assert offsets == sorted(offsets)
    assert len(found) == len(sample.builder.stored) + 2  # a batch of three is one record


def test_an_object_has_every_field(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append()
    stored = builder.append(
        "Orders",
        1,
        b"hello",
        {"TAGS": "TagA", "KEYS": "a b", "UNIQ_KEY": "U1"},
        flag=5,
        sys_flag=0x8,
        prepared_offset=9,
        reconsume_times=2,
        born_port=4000,
        store_ip=bytes(15) + b"\1",
        store_port=10911,
    )
    builder.write_log()
    found = objects(builder.open())[1]
    assert found == {
        "topic": "Orders",
        "queueId": 1,
        "queueOffset": 0,
        "physicalOffset": stored.offset,
        "storeSize": stored.size,
        "msgId": "U1",
        "offsetMsgId": f"{'00' * 15}01{10911:08X}{stored.offset:016X}",
        "tags": "TagA",
        "keys": "a b",
        "properties": {"TAGS": "TagA", "KEYS": "a b", "UNIQ_KEY": "U1"},
        "flag": 5,
        "sysFlag": 0x28,
        "bornTimestamp": stored.timestamp,
        "bornHost": "127.0.0.1:4000",
        "storeTimestamp": stored.timestamp,
        "storeHost": "[::1]:10911",
        "reconsumeTimes": 2,
        "preparedTransactionOffset": 9,
        "transaction": "commit",
        "compression": None,
        "innerIndex": None,
        "bodyCrc": found["bodyCrc"],
        "storedBodySize": 5,
        "bodySize": 5,
        "bodySha256": hashlib.sha256(b"hello").hexdigest(),
    }


def test_a_message_without_a_unique_key_has_its_place_as_id(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (found,) = objects(sample.open(), first_offset=sample.keyless.offset, topic="Orders")[:1]
    assert found["msgId"] == found["offsetMsgId"]
    assert found["keys"] is None


def test_a_body_is_text_if_it_can_be(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append(body="grün".encode())
    builder.append(body=b"\xff\x00")
    builder.write_log()
    text, binary = (
        as_object(message, with_body=True)
        for message in dump(builder.open())
        if not isinstance(message, Damage)
    )
    assert text["body"] == "grün"
    assert binary["bodyBase64"] == "/wA="


def test_messages_of_an_inner_batch_stand_alone(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    found = objects(sample.open(), topic="Batches")
    assert [each["queueOffset"] for each in found] == [0, 1, 2, 3]
    assert [each["innerIndex"] for each in found] == [0, 1, 2, None]
    assert [each["keys"] for each in found] == ["inner-0", "inner-1", "inner-2", None]
    assert len({each["physicalOffset"] for each in found}) == 2


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"topic": "Orders"}, 31),
        ({"topic": "Orders", "queue_id": 1}, 15),
        ({"topic": "order"}, 0),
        ({"topic": "Orders", "queue_id": 0, "first_queue_offset": 3, "end_queue_offset": 5}, 2),
        ({"first_queue_offset": 1, "end_queue_offset": 2, "topic": "Batches"}, 1),
        ({"key": "all"}, 21),
        ({"key": "k5"}, 1),
        ({"key": "k"}, 0),
        ({"key": "U-half"}, 2),
        ({"key": "inner-1"}, 1),
        ({"tag": "Tag1"}, 5),
        ({"tag": "Tag"}, 0),
        ({"message_id": "u-half"}, 2),
        ({"first_offset": 2048, "end_offset": 2049}, 1),
        ({"begin_ms": START_MS, "end_ms": START_MS + 1_401}, 2),
        ({"begin_ms": START_MS + 27_999}, 1),
        ({"topic": "Orders", "key": "all", "tag": "Tag1"}, 5),
    ],
)
def test_what_is_asked_for_is_shown(wanted: dict[str, Any], count: int, tmp_path: Path) -> None:
    assert len(objects(sample_store(tmp_path).open(), **wanted)) == count


def test_a_message_is_found_by_its_offset_id(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    wanted = objects(sample.open())[7]
    assert objects(sample.open(), message_id=wanted["offsetMsgId"].lower()) == [wanted]


def test_files_before_a_time_are_not_read(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(2048))  # nobody may notice
    second = next(each for each in sample.builder.stored if each.offset >= 2048)
    found = objects(sample.open(), begin_ms=second.timestamp + 1)
    assert found[0]["storeTimestamp"] > second.timestamp
    assert len({each["physicalOffset"] for each in found}) == sum(
        each.timestamp > second.timestamp for each in sample.builder.stored
    )


def test_damage_is_told_between_the_messages(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    sample.patch_log(sample.keyless.offset + 88, b"?")
    found = list(dump(sample.open()))
    (damage,) = (each for each in found if isinstance(each, Damage))
    assert damage.offset == sample.keyless.offset
    assert len(found) == len(sample.builder.stored) + 2
