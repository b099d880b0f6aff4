"""Numbers and shapes that both twins share: the layouts of a remoting frame and of a record."""

from __future__ import annotations

from typing import Final, NamedTuple

# --- remoting frame -------------------------------------------------------------------------
#
#   | length  | serializer | header length | header        | body   |
#   | 4 bytes | 1 byte     | 3 bytes       | as announced  | rest   |
#
# length counts everything after itself. The two middle fields are one big-endian word, which is
# why a C++ or Node client that does not mask the first byte only understands serializer 0.
LENGTH_BYTES: Final = 4
HEADER_WORD_BYTES: Final = 4
HEADER_BYTES_LIMIT: Final = (1 << 24) - 1  # what three bytes can announce

JSON_HEADER: Final = 0
BINARY_HEADER: Final = 1

# Names as JSON headers carry them; the position is the byte of binary headers.
LANGUAGES: Final = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
LANGUAGE_JAVA: Final = 0
LANGUAGE_PYTHON: Final = 3
LANGUAGE_OTHER: Final = 7

# Version that we announce: RocketMQ 5.3.3. Java consumers refuse SQL92 below 232.
VERSION: Final = 479

# --- stored record --------------------------------------------------------------------------
MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)  # topic length is one byte
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)  # topic length is two bytes; only for topics over 127
MAGIC_BLANK: Final = 0xCBD43194 - (1 << 32)  # closes a commit-log file
BLANK_BYTES: Final = 8

FLAG_BORN_HOST_V6: Final = 0x10
FLAG_STORE_HOST_V6: Final = 0x20

TOPIC_V1_BYTES_MAX: Final = 127  # Java reads the length byte as signed
TOPIC_V2_BYTES_MAX: Final = 32767
TOPIC_BYTES_MAX: Final = 255  # what RocketMQ admits, retry topics included
PROPERTIES_BYTES_MAX: Final = 32767
# Everything but hosts, topic length, body, topic and properties.
RECORD_FIXED_BYTES: Final = 74
RECORD_BYTES_MIN: Final = RECORD_FIXED_BYTES + 8 + 8 + 1


def record_bytes(body_bytes: int, topic_bytes: int, properties_bytes: int) -> int:
    """How long a record with IPv4 hosts is; each IPv6 host adds 12."""
    topic_length_bytes = 1 if topic_bytes <= TOPIC_V1_BYTES_MAX else 2
    return (
        RECORD_FIXED_BYTES + 16 + body_bytes + topic_length_bytes + topic_bytes + properties_bytes
    )


HOST_BYTES: Final = frozenset({8, 20})  # IPv4 or IPv6, and the port
LOOPBACK_HOST: Final = bytes([127, 0, 0, 1, 0, 0, 0, 0])  # a host without a port

# --- consume queue entry --------------------------------------------------------------------
ENTRY_BYTES: Final = 20
# RocketMQ fills the front of a queue that does not start at 0 with entries of this size.
FILLER_SIZE: Final = 0x7FFFFFFF


class ScannedRecord(NamedTuple):
    """What a dispatcher needs to know about one record, without its body."""

    position: int  # in the scanned buffer
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    store_timestamp: int
    prepared_offset: int
    tags_code: int  # Java hash of TAGS, 0 without
    properties: str


class Scan(NamedTuple):
    """Records found one after the other, and why the scan stopped at `position`.

    `ending` is ``"end"`` (nothing more was written: zeros, or the buffer's end), ``"blank"`` (the
    filler that closes a file; `position` is behind it), ``"partial"`` (a record starts here but
    does not fit in the buffer) or ``"broken"`` (these bytes are no record; `reason` says why).
    """

    records: list[ScannedRecord]
    position: int
    ending: str
    reason: str


class Tiling(NamedTuple):
    """Where records begin that follow each other from a known start, judged by headers alone.

    `starts` has position and store time of the first record, and of the first one at or behind
    every so many bytes. `ending` is ``"end"`` (zeros, or nothing is left), ``"blank"`` (the filler
    that closes a file; `position` is before it) or ``"broken"`` (no record lies here that ends in
    time and says that it lies here). `falls` says that a record was stored before one in front of
    it, by what they say: a clock was set back, or what follows is older than the log.
    """

    starts: list[tuple[int, int]]
    position: int
    records: int
    ending: str
    last_store_timestamp: int
    falls: bool


class Selected(NamedTuple):
    """Wanted records as runs (from, to) that lie back to back; where the walk stopped, and why.

    `ending` is ``"stop"`` (the range is through), ``"full"`` (enough bytes for now) or ``"odd"``
    (no sound record begins at `position`).
    """

    runs: list[tuple[int, int]]
    position: int
    ending: str


class Derived(NamedTuple):
    """How far entries were derived, of how many records, and when the last of them was stored."""

    position: int
    records: int
    last_store_timestamp: int


class Gathered(NamedTuple):
    """What to send for some entries of a queue."""

    examined: int  # entries looked at
    records: int
    size: int
    slices: list[memoryview]  # of the log's own memory; records that lie back to back share one
    last_physical: int  # of the last entry that was seen
    whole: bool  # False: it stopped before an entry whose record is not to be had like this


# --- columns of a table of messages -----------------------------------------------------------
#
# What `ArrowRows.take` hands out for each kind, as Arrow lays it out (little-endian):
#
#   int32, int64, time   (values,)                          time: microseconds since 1970
#   text, bytes          (offsets, values, validity or None, nulls)
#   map                  (offsets, name offsets, names, value offsets, values)
COLUMN_KINDS: Final = {
    "topic": "text",
    "broker": "text",
    "queueId": "int32",
    "offset": "int64",
    "msgId": "text",
    "offsetMsgId": "text",
    "keys": "text",
    "tags": "text",
    "bornTimestamp": "time",
    "storeTimestamp": "time",
    "bornHost": "text",
    "storeHost": "text",
    "reconsumeTimes": "int32",
    "flag": "int32",
    "sysFlag": "int32",
    "physicalOffset": "int64",
    "preparedTransactionOffset": "int64",
    "properties": "map",
    "propertiesRaw": "text",
    "body": "bytes",
    "bodyText": "text",  # the body as a string
    "recordSize": "int32",  # of the whole record; messages of an inner batch share it
}
FLAG_PACKED: Final = 0x1
FLAG_WRAPPED: Final = 0xC0  # both bits: several messages in one record
COLUMN_BYTES_MAX: Final = (1 << 31) - 1  # what 32-bit offsets reach
