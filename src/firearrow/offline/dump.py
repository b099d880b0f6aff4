"""Messages of a store directory, one by one, in the order of the log.

The log alone is read: what it holds is shown, whether a queue knows it or not.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from firearrow.hot import decode_record, offset_message_id
from firearrow.model.compression import compression_of
from firearrow.model.message import (
    FLAG_INNER_BATCH,
    FLAG_TRANSACTION,
    KEYS,
    TAGS,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    UNIQ_KEY,
)
from firearrow.offline.derived import keys_of
from firearrow.offline.log_walk import Damage
from firearrow.offline.payload import messages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from firearrow.hot import ScannedRecord
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.payload import Message

TRANSACTIONS: Final = {
    TRANSACTION_PREPARED: "prepared",
    TRANSACTION_COMMIT: "commit",
    TRANSACTION_ROLLBACK: "rollback",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages to show; what is None does not matter. Ends are exclusive."""

    topic: str | None = None
    queue_id: int | None = None
    first_queue_offset: int | None = None
    end_queue_offset: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    key: str | None = None
    tag: str | None = None
    message_id: str | None = None

    def takes_record(self, record: ScannedRecord) -> bool:  # noqa: PLR0911 - one per condition
        """Judge by what needs no unpacking."""
        if self.topic is not None and record.topic != self.topic:
            return False
        if self.queue_id is not None and record.queue_id != self.queue_id:
            return False
        if not _in_range(record.physical_offset, self.first_offset, self.end_offset):
            return False
        if not _in_range(record.store_timestamp, self.begin_ms, self.end_ms):
            return False
        if record.sys_flag & FLAG_INNER_BATCH:
            return True  # its messages have offsets and properties of their own
        if not _in_range(record.queue_offset, self.first_queue_offset, self.end_queue_offset):
            return False
        if self.key is not None and self.key not in record.properties:
            return False
        return self.tag is None or self.tag in record.properties

    def takes(self, message: Message) -> bool:
        """Judge a message of a record that `takes_record` let through."""
        properties = message.properties
        if not _in_range(message.queue_offset, self.first_queue_offset, self.end_queue_offset):
            return False
        if self.key is not None and self.key not in keys_of(properties):
            return False
        if self.tag is not None and properties.get(TAGS) != self.tag:
            return False
        if self.message_id is not None:
            wanted = self.message_id.upper()
            return wanted in {properties.get(UNIQ_KEY, "").upper(), offset_id(message)}
        return True


def _in_range(number: int, first: int | None, end: int | None) -> bool:
    return (first is None or number >= first) and (end is None or number < end)


def dump(
    store: StoreDirectory,
    selection: Selection | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Message | Damage]:
    """Every selected message, and every part of the log that cannot be read."""
    selection = selection or Selection()
    walk = store.walk(
        first_offset=_first_offset(store, selection),
        end_offset=selection.end_offset,
        progress=progress,
    )
    for found in walk:
        if isinstance(found, Damage):
            yield found
            continue
        for scanned in found.records:
            if selection.takes_record(scanned):
                for message in messages_of(decode_record(found.data, scanned.position)):
                    if selection.takes(message):
                        yield message


def _first_offset(store: StoreDirectory, selection: Selection) -> int:
    """Where to begin: a file is left out if the next one begins before the time we look for."""
    first = selection.first_offset or 0
    if selection.begin_ms is not None:
        for file in reversed(store.log_files):
            record = store.record_at(file.first_offset)
            if record is not None and record.store_timestamp < selection.begin_ms:
                return max(first, file.first_offset)
    return first


def offset_id(message: Message) -> str:
    """Where the message lies, as an id: store host and physical offset."""
    record = message.record
    port = record.store_port & 0xFFFFFFFF  # no checksum covers it
    return offset_message_id(record.store_ip, port, record.physical_offset)


def message_id(message: Message) -> str:
    """The id that producers and consumers see."""
    return message.properties.get(UNIQ_KEY) or offset_id(message)


def as_object(message: Message, *, with_body: bool = False) -> dict[str, Any]:
    """Everything about a message, for JSON."""
    record, properties = message.record, message.properties
    found: dict[str, Any] = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeSize": record.size,
        "msgId": message_id(message),
        "offsetMsgId": offset_id(message),
        "tags": properties.get(TAGS),
        "keys": properties.get(KEYS),
        "properties": properties,
        "flag": message.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp,
        "bornHost": _host(record.born_ip, record.born_port),
        "storeTimestamp": record.store_timestamp,
        "storeHost": _host(record.store_ip, record.store_port),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "transaction": TRANSACTIONS.get(record.sys_flag & FLAG_TRANSACTION),
        "compression": compression_of(record.sys_flag),
        "innerIndex": message.inner_index,
        "bodyCrc": record.body_crc,
        "storedBodySize": len(record.body),
        "bodySize": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
    }
    if message.note:
        found["note"] = message.note
    if with_body:
        try:
            found["body"] = message.body.decode()
        except UnicodeDecodeError:
            found["bodyBase64"] = base64.b64encode(message.body).decode()
    return found


@lru_cache(maxsize=4096)
def _host(ip: bytes, port: int) -> str:
    address = ipaddress.ip_address(ip)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
