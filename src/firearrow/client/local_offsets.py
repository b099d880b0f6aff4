"""How far a broadcasting consumer has read, in RocketMQ's file: a Java consumer can go on from it.

Broadcasting offsets are the consumer's own business, so they lie beside it and not on a broker:
``<directory>/<client id>/<group>/offsets.json``. Queues are the keys, as objects, which is not
JSON but what fastjson writes and reads. The version before is kept as ``.bak``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.base.errors import PeerProtocolError
from firearrow.base.files import load_with_backup, write_atomically
from firearrow.model.topic import Int64, MessageQueue
from firearrow.wire import java_json
from firearrow.wire.java_json import ObjectMap

if TYPE_CHECKING:
    from collections.abc import Mapping

# Ours; Java has the system property rocketmq.client.localOffsetStoreDir for it.
DIRECTORY_VARIABLE: Final = "ROCKETMQ_CLIENT_LOCAL_OFFSET_STORE_DIR"
DIRECTORY: Final = ".rocketmq_offsets"  # in the user's home


def offset_file_path(client_id: str, group: str, directory: str | Path | None = None) -> Path:
    """Where the offsets of a consumer are.

    `directory` if given, else the environment variable ROCKETMQ_CLIENT_LOCAL_OFFSET_STORE_DIR, else
    ``~/.rocketmq_offsets``, which Java consumers use too. The client id must be the same after each
    start, or consumption starts anew.
    """
    root = directory or os.environ.get(DIRECTORY_VARIABLE) or Path.home() / DIRECTORY
    return Path(root) / client_id / group / "offsets.json"


class LocalOffsetFile:
    """One consumer's offsets on disk. `load` and `save` block: call them where that is allowed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[MessageQueue, int]:
        """All offsets; none if nothing was ever saved.

        ConfigError if there are files and none of them can be understood: to go on without them
        would be to read everything, or nothing, again.
        """
        return load_with_backup(self._path, _decode) or {}

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Note some offsets; those of other queues stay as they are in the file."""
        stored = self.load()
        merged = {**stored, **offsets}
        if merged != stored:  # a consumer saves every few seconds, also when nothing happens
            write_atomically(self._path, _encode(merged))


class _OffsetTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    offset_table: ObjectMap[MessageQueue, Int64] = msgspec.field(default_factory=ObjectMap)


def _decode(content: bytes) -> dict[MessageQueue, int]:
    try:
        return dict(java_json.decode(content, _OffsetTable).offset_table)
    except PeerProtocolError as error:
        raise ValueError(f"it does not hold offsets: {error}") from error


def _encode(offsets: Mapping[MessageQueue, int]) -> bytes:
    """White space and all, as fastjson prints it.

    {
        "offsetTable":{{
                "brokerName":"b",
                "queueId":0,
                "topic":"t"
            }:123,{
                ...
            }:7
        }
    }
    """
    entries = [
        b'{\n\t\t\t"brokerName":%b,\n\t\t\t"queueId":%d,\n\t\t\t"topic":%b\n\t\t}:%d'
        % (java_json.encode(queue.broker_name), queue.queue_id, java_json.encode(queue.topic), at)
        for queue, at in sorted(offsets.items())
    ]
    table = b"{%b\n\t}" % b",".join(entries) if entries else b"{}"
    return b'{\n\t"offsetTable":%b\n}' % table
