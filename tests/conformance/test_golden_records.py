"""Records of commit logs that Apache RocketMQ 5.3.3 wrote: scanned, decoded, written again."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from firearrow.hot import (
    Record,
    decode_properties,
    decode_record,
    encode_record,
    offset_message_id,
    parse_offset_message_id,
    scan_records,
)

DATA: Final = Path(__file__).parent / "data"
STORES: Final = ("clean", "killed")


@cache
def commit_log(store: str) -> dict[int, bytes]:
    """Files of the commit log by their first offset."""
    files: dict[int, bytes] = {}
    with tarfile.open(DATA / f"store-5.3.3-{store}.tar.gz") as archive:
        for member in archive:
            path = Path(member.name)
            if path.parent.name == "commitlog" and (file := archive.extractfile(member)):
                files[int(path.name)] = file.read()
    return files


@cache
def manifest(store: str) -> dict[str, Any]:
    with gzip.open(DATA / f"store-5.3.3-{store}.manifest.json.gz") as file:
        return dict(json.load(file))


def records_of(store: str) -> dict[int, Record]:
    """Every record by its physical offset."""
    found: dict[int, Record] = {}
    for first_offset, content in sorted(commit_log(store).items()):
        scan = scan_records(content, 0, len(content), check_crc=True)
        assert scan.ending in {"blank", "end"}, scan.reason
        for scanned in scan.records:
            record = decode_record(content, scanned.position)
            assert record.physical_offset == first_offset + scanned.position
            assert (record.topic, record.queue_id) == (scanned.topic, scanned.queue_id)
            found[record.physical_offset] = record
    return found


@pytest.mark.parametrize("store", STORES)
def test_log_ends_where_the_broker_said_it_does(store: str) -> None:
    last = max(records_of(store).values(), key=lambda record: record.physical_offset)
    assert last.physical_offset + last.size == manifest(store)["commitLog"]["maxOffset"]


@pytest.mark.parametrize("store", STORES)
def test_every_message_a_java_client_read_is_found_with_all_its_fields(store: str) -> None:
    records = records_of(store)
    compared = 0
    for message in manifest(store)["messages"]:
        if not message.get("offsetMsgId"):
            continue  # made up by the client out of an inner batch
        record = records[message["physicalOffset"]]
        host, _, port = message["storeHost"].rpartition(":")
        ip = bytes(int(part) for part in host.split("."))
        assert offset_message_id(ip, int(port), record.physical_offset) == message["offsetMsgId"]
        assert (record.topic, record.queue_id) == (message["topic"], message["queueId"])
        assert record.queue_offset == message["queueOffset"]
        assert (record.size, record.body_crc) == (message["storeSize"], message["bodyCrc"])
        assert (record.flag, record.sys_flag) == (message["flag"], message["sysFlag"])
        assert record.born_timestamp == message["bornTimestamp"]
        assert record.store_timestamp == message["storeTimestamp"]
        assert record.reconsume_times == message["reconsumeTimes"]
        assert record.prepared_offset == message["preparedTransactionOffset"]
        assert decode_properties(record.properties) == message["properties"]
        assert hashlib.sha256(record.body).hexdigest() == message["storedBodySha256"]
        compared += 1
    assert compared > 300


@pytest.mark.parametrize("store", STORES)
def test_every_record_is_written_again_byte_for_byte(store: str) -> None:
    versions = set()
    for first_offset, content in commit_log(store).items():
        for scanned in scan_records(content, 0, len(content)).records:
            raw = content[scanned.position : scanned.position + scanned.size]
            assert encode_record(decode_record(raw)) == raw, first_offset + scanned.position
            versions.add(raw[4:8].hex())
    assert versions == {"daa320a7", "daa320ab"}, "the stores hold records of both versions"


def test_every_acknowledged_message_of_the_killed_broker_is_in_its_log() -> None:
    acknowledged = manifest("killed")["acknowledgedWhileKilled"]
    assert len(acknowledged) > 300
    records = records_of("killed")
    for message_id in acknowledged:
        ip, port, physical_offset = parse_offset_message_id(message_id)
        record = records[physical_offset]
        assert (record.store_ip, record.store_port) == (ip, port)
