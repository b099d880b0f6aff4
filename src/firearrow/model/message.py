"""The words of a message: property names, system flags, hosts.

Property names are RocketMQ's; what each means is in its protocol. Only those that our own code
reads or writes are listed.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# --- properties -----------------------------------------------------------------------------
KEYS: Final = "KEYS"
KEY_SEPARATOR: Final = " "
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
INNER_NUM: Final = "INNER_NUM"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
TRAN_MSG: Final = "TRAN_MSG"  # "true": a half message
PRODUCER_GROUP: Final = "PGROUP"  # whom to ask about it
TRANSACTION_ID: Final = "__transactionId__"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"  # how often its producer was asked
CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"  # how long it must not be asked
PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"  # of the copy that was sent
# Ours: a half message that stands for several, and the work that it is part of.
PARTS: Final = "FA_PARTS"  # how many messages its body has, as a batch has them
SCOPE: Final = "FA_SCOPE"  # whose work: a query, a job
EPOCH: Final = "FA_EPOCH"  # which step of it; all of a step is delivered, or nothing
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
SHARDING_KEY: Final = "__SHARDINGKEY"
INSTANCE_ID: Final = "INSTANCE_ID"
MESSAGE_TYPE: Final = "MSG_TYPE"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"

# Messages with a delivery time of their own: what clients ask for, and what the timer adds.
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"  # the slot of the wheel
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"  # takes another message back

# --- system flag ----------------------------------------------------------------------------
FLAG_COMPRESSED: Final = 0x1
FLAG_MULTI_TAGS: Final = 0x2
FLAG_TRANSACTION: Final = 0xC  # mask
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
FLAG_NEED_UNWRAP: Final = 0x40
FLAG_INNER_BATCH: Final = 0x80
FLAG_COMPRESSION: Final = 0x700  # mask


def host_bytes(address: str, port: int) -> bytes:
    """A host as records hold it: 4 or 16 bytes of IP, 4 of port. IPv4 in IPv6 becomes IPv4."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return ip.packed + struct.pack(">i", port)


def split_host(text: str) -> tuple[bytes, int]:
    """IP and port of ``ip:port``, with or without Java's leading slash."""
    host, _, port = text.rpartition("/")[2].rpartition(":")
    ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    return ip.packed, int(port)


def properties_bytes(properties: Mapping[str, str]) -> bytes:
    """A property string as records hold it; what came off the wire is taken as it is."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
