"""The code that runs per message: compiled where there is a compiler, plain Python elsewhere.

`reference/` is the specification and is written to be read; `native/` holds the same functions in
Cython, file by file, and a parity suite runs both on the same generated input. Nothing else in
FireArrow is compiled. Import the names from here; never from a twin.

The choice is made once, at import. ``FIREARROW_HOT=native`` or ``=reference`` decides; without it
the compiled twin is taken if it is there. `KIND` says which one it was.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


def choose(environ: Mapping[str, str]) -> str:
    """Which twin the environment asks for; falls back only when nobody asked."""
    wanted = environ.get("FIREARROW_HOT", "")
    if wanted not in {"", "native", "reference"}:
        raise ImportError(f"FIREARROW_HOT={wanted!r}: use 'native' or 'reference', or unset it")
    if wanted != "reference":
        try:
            importlib.import_module("firearrow.hot.native")
        except ImportError as error:
            if wanted == "native":
                raise ImportError(
                    "FIREARROW_HOT=native, but the compiled module is not here: install with a C "
                    "compiler present (pip install -e .), or unset FIREARROW_HOT"
                ) from error
        else:
            return "native"
    return "reference"


KIND: Final = choose(os.environ)

# For type checkers the specification is the interface; a test compares the twins' signatures.
if TYPE_CHECKING or KIND == "reference":
    from firearrow.hot.reference import (
        ArrowRows,
        Command,
        Derived,
        Gathered,
        KeyTable,
        LogWriter,
        PairsColumn,
        Pulled,
        PullGate,
        PullPath,
        QueueTail,
        ReceiptReader,
        Record,
        Scan,
        ScannedRecord,
        Selected,
        SendForm,
        SendPath,
        Served,
        StoreMessage,
        TextColumn,
        Tiling,
        TopicGate,
        bring_in,
        check_run,
        count_parts,
        crc31,
        decode_frames,
        decode_properties,
        decode_record,
        decode_records,
        derive_records,
        encode_frame,
        encode_head,
        encode_messages,
        encode_properties,
        encode_record,
        encode_rows,
        encode_unique_key,
        gather_entries,
        java_hash,
        key_hash,
        number_keys,
        offset_message_id,
        own_filter,
        parse_offset_message_id,
        parse_unique_key,
        property_values,
        pull_key,
        queue_key,
        scan_records,
        select_records,
        serve_syncs,
        tile_records,
        write_record,
    )
else:
    from firearrow.hot.native import (
        ArrowRows,
        Command,
        Derived,
        Gathered,
        KeyTable,
        LogWriter,
        PairsColumn,
        Pulled,
        PullGate,
        PullPath,
        QueueTail,
        ReceiptReader,
        Record,
        Scan,
        ScannedRecord,
        Selected,
        SendForm,
        SendPath,
        Served,
        StoreMessage,
        TextColumn,
        Tiling,
        TopicGate,
        bring_in,
        check_run,
        count_parts,
        crc31,
        decode_frames,
        decode_properties,
        decode_record,
        decode_records,
        derive_records,
        encode_frame,
        encode_head,
        encode_messages,
        encode_properties,
        encode_record,
        encode_rows,
        encode_unique_key,
        gather_entries,
        java_hash,
        key_hash,
        number_keys,
        offset_message_id,
        own_filter,
        parse_offset_message_id,
        parse_unique_key,
        property_values,
        pull_key,
        queue_key,
        scan_records,
        select_records,
        serve_syncs,
        tile_records,
        write_record,
    )

__all__ = [
    "KIND",
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
