"""The compiled twins of `firearrow.hot.reference`; see there for what the functions do."""

from firearrow.hot.layout import Derived, Gathered, Scan, ScannedRecord, Selected, Tiling
from firearrow.hot.native.arrow import ArrowRows
from firearrow.hot.native.batches import PairsColumn, TextColumn, encode_rows
from firearrow.hot.native.commands import Command, encode_frame, encode_head
from firearrow.hot.native.frames import decode_frames
from firearrow.hot.native.keys import KeyTable
from firearrow.hot.native.producing import ReceiptReader, SendForm, encode_messages, number_keys
from firearrow.hot.native.properties import property_values
from firearrow.hot.native.pulling import Pulled, PullGate, PullPath, own_filter, pull_key
from firearrow.hot.native.queues import (
    QueueTail,
    check_run,
    derive_records,
    gather_entries,
    key_hash,
    queue_key,
)
from firearrow.hot.native.records import (
    Record,
    decode_record,
    decode_records,
    encode_record,
    scan_records,
    select_records,
    tile_records,
    write_record,
)
from firearrow.hot.native.sending import SendPath, Served, TopicGate
from firearrow.hot.native.syncing import bring_in, serve_syncs
from firearrow.hot.native.text import (
    crc31,
    decode_properties,
    encode_properties,
    encode_unique_key,
    java_hash,
    offset_message_id,
    parse_offset_message_id,
    parse_unique_key,
)
from firearrow.hot.native.writing import LogWriter, StoreMessage, count_parts

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
