"""The specification of `firearrow.hot`, in plain Python. `native/` must agree with it exactly."""

from firearrow.hot.layout import Derived, Gathered, Scan, ScannedRecord, Selected, Tiling
from firearrow.hot.reference.arrow import ArrowRows
from firearrow.hot.reference.batches import PairsColumn, TextColumn, encode_rows
from firearrow.hot.reference.commands import Command, encode_frame, encode_head
from firearrow.hot.reference.frames import decode_frames
from firearrow.hot.reference.keys import KeyTable
from firearrow.hot.reference.producing import ReceiptReader, SendForm, encode_messages, number_keys
from firearrow.hot.reference.properties import property_values
from firearrow.hot.reference.pulling import Pulled, PullGate, PullPath, own_filter, pull_key
from firearrow.hot.reference.queues import (
    QueueTail,
    check_run,
    derive_records,
    gather_entries,
    key_hash,
    queue_key,
)
from firearrow.hot.reference.records import (
    Record,
    decode_record,
    decode_records,
    encode_record,
    scan_records,
    select_records,
    tile_records,
    write_record,
)
from firearrow.hot.reference.sending import SendPath, Served, TopicGate
from firearrow.hot.reference.syncing import bring_in, serve_syncs
from firearrow.hot.reference.text import (
    crc31,
    decode_properties,
    encode_properties,
    encode_unique_key,
    java_hash,
    offset_message_id,
    parse_offset_message_id,
    parse_unique_key,
)
from firearrow.hot.reference.writing import LogWriter, StoreMessage, count_parts

__all__ = [
    "ArrowRows",
    "Command",
    "Derived",
    "Gathered",
    "KeyTable",
    "LogWriter",
    "PairsColumn",
    "PullGate",
    "PullPath",
    "Pulled",
    "QueueTail",
    "ReceiptReader",
    "Record",
    "Scan",
    "ScannedRecord",
    "Selected",
    "SendForm",
    "SendPath",
    "Served",
    "StoreMessage",
    "TextColumn",
    "Tiling",
    "TopicGate",
    "bring_in",
    "check_run",
    "count_parts",
    "crc31",
    "decode_frames",
    "decode_properties",
    "decode_record",
    "decode_records",
    "derive_records",
    "encode_frame",
    "encode_head",
    "encode_messages",
    "encode_properties",
    "encode_record",
    "encode_rows",
    "encode_unique_key",
    "gather_entries",
    "java_hash",
    "key_hash",
    "number_keys",
    "offset_message_id",
    "own_filter",
    "parse_offset_message_id",
    "parse_unique_key",
    "property_values",
    "pull_key",
    "queue_key",
    "scan_records",
    "select_records",
    "serve_syncs",
    "tile_records",
    "write_record",
]
