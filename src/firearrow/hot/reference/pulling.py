"""The pull path of a broker for ordinary pulls: from bytes of a socket to records of the log.

`PullPath.serve` takes frames from the front of what was read, as long as each is an ordinary pull
that finds something: in JSON, of a group, topic and filter that have a gate, from a place that is
in memory and in one file of the log. It stops at the first frame that is anything else; the general
handler of the broker, which has all the rules, takes that one. Both must give the same answer to
the same frame, and a test sees to it.

The compiled twin may stop earlier (at a header that is written in an unusual way), never later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.hot.layout import ENTRY_BYTES, JSON_HEADER
from firearrow.hot.reference.commands import Command, encode_head
from firearrow.hot.reference.frames import decode_frames
from firearrow.hot.reference.queues import gather_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from firearrow.hot.layout import Gathered
    from firearrow.hot.reference.queues import QueueTail
    from firearrow.hot.reference.writing import LogWriter

PULL_MESSAGE: Final = 11
LITE_PULL_MESSAGE: Final = 361
_COMMIT_OFFSET: Final = 1
_OWN_FILTER: Final = 4
_FLAGS: Final = 1 | 2 | 4 | 16  # commit, suspend, own filter, lite pull
_INT32: Final = ("queueId", "maxMsgNums", "sysFlag")
_INT64: Final = ("queueOffset", "commitOffset", "suspendTimeoutMillis", "subVersion")
KEY_BYTES_MAX: Final = 1024
# The fields of a reply that differ from pull to pull.
PLACES: Final = ("nextBeginOffset", "minOffset", "maxOffset")


def pull_key(code: int, group: str, topic: str, own_filter: str) -> bytes:
    """Under which a gate is found. A pull with a filter of its own says so in `own_filter`."""
    return f"{code}\0{group}\0{topic}\0{own_filter}".encode("utf-8", "replace")


def own_filter(subscription: str | None, expression_type: str | None) -> str:
    return f"{subscription or ''}\0{expression_type or ''}"


class PullGate:
    """What a group may read of a topic, and what has passed since."""

    __slots__ = (
        "bytes_max",
        "codes",
        "committed",
        "group",
        "messages",
        "most",
        "pulled",
        "pulls",
        "queues",
        "reply",
        "scan",
        "size",
        "sub_version",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        group: str,
        queues: list[QueueTail | None],
        *,
        codes: Collection[int] | None,
        sub_version: int,
        most: int,
        bytes_max: int,
        scan: int,
        committed: dict[int, int],
        pulled: dict[int, int],
        reply: dict[str, str],
    ) -> None:
        self.topic = topic
        self.group = group
        self.queues = queues  # by id; None where the general handler must go first
        self.codes = codes  # tag hashes that are wanted; None: everything
        self.sub_version = sub_version  # newer ones need a heartbeat first
        self.most = most  # records of one answer
        self.bytes_max = bytes_max
        self.scan = scan  # entries that are looked at for one answer
        self.committed = committed  # how far the group says it is, by queue
        self.pulled = pulled  # how far it has read, by queue
        self.reply = reply  # fields of every answer, in order, also those that differ
        self.pulls = 0
        self.messages = 0
        self.size = 0


class Pulled(NamedTuple):
    """What was done with the front of a read."""

    used: int  # bytes of whole frames
    pulls: int
    messages: int
    commits: int
    replies: list[bytes]


class PullPath:
    """Knows the gates and the log.

    `look_ahead` puts entries of a queue's files into its window. `is_warm` says whether bytes of
    the log far behind its end are in memory nevertheless.
    """

    def __init__(
        self,
        writer: LogWriter,
        gates: dict[bytes, PullGate],
        files: dict[int, memoryview],
        *,
        file_bytes: int,
        entries_per_file: int,
        memory_bytes: int,
        verified_from: int,
        look_ahead: Callable[[QueueTail, int], None],
        is_warm: Callable[[int, int], bool] | None = None,
    ) -> None:
        self._writer = writer
        self._gates = gates
        self._files = files
        self._file_bytes = file_bytes
        self._entries_per_file = entries_per_file
        self._memory_bytes = memory_bytes
        self._verified_from = verified_from
        self._look_ahead = look_ahead
        self._is_warm = is_warm

    def serve(self, data: bytes | bytearray, frame_bytes_max: int, reply_bytes_max: int) -> Pulled:
        """Answer ordinary pulls from the front of `data`, until there are enough replies."""
        used = messages = commits = size = 0
        replies: list[bytes] = []
        while size < reply_bytes_max:
            frame_bytes = 4 + int.from_bytes(data[used : used + 4], "big")
            if len(data) - used < 8 or not 8 <= frame_bytes <= min(
                frame_bytes_max, len(data) - used
            ):
                break
            frame = bytes(data[used : used + frame_bytes])
            commands, taken, bad = decode_frames(frame, frame_bytes_max, frame_bytes)
            if bad or taken != frame_bytes or len(commands) != 1:
                break
            answer = self._pull(commands[0])
            if answer is None:
                break
            reply, found, commit = answer
            replies.append(reply)
            used += frame_bytes
            messages += found
            commits += commit
            size += len(reply)
        return Pulled(used, len(replies), messages, commits, replies)

    def _pull(self, command: Command) -> tuple[bytes, int, int] | None:
        """Reply, messages in it and commits made; None if the general handler must do it."""
        if not _is_ordinary(command):
            return None
        ext = command.ext
        flags, queue_id, offset = (int(ext[n]) for n in ("sysFlag", "queueId", "queueOffset"))
        own = ""
        if flags & _OWN_FILTER:
            own = own_filter(ext.get("subscription"), ext.get("expressionType"))
        key = pull_key(command.code, ext["consumerGroup"], ext["topic"], own)
        gate = self._gates.get(key) if len(key) <= KEY_BYTES_MAX else None
        if (
            gate is None
            or int(ext["subVersion"]) > gate.sub_version
            or not 0 <= queue_id < len(gate.queues)
        ):
            return None
        queue = gate.queues[queue_id]
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return None
        gathered = self._gather(gate, queue, offset, int(ext["maxMsgNums"]))
        if gathered is None:
            return None
        commit = int(ext["commitOffset"])
        commits = int(bool(flags & _COMMIT_OFFSET) and commit >= 0)
        if commits:
            gate.committed[queue_id] = commit
        following = offset + gathered.examined
        gate.pulled[queue_id] = following
        gate.pulls += 1
        gate.messages += gathered.records
        gate.size += gathered.size
        places = zip(PLACES, (following, queue.min_offset, queue.max_offset), strict=True)
        reply = Command(
            0,
            gate.reply | {name: str(value) for name, value in places},
            opaque=command.opaque,
            flag=1,
            remark="FOUND",
        )
        body = b"".join(gathered.slices)
        return encode_head(reply, len(body)) + body, gathered.records, commits

    def _gather(
        self, gate: PullGate, queue: QueueTail, offset: int, max_count: int
    ) -> Gathered | None:
        """The records of an answer; None if they are not all there, in memory, in one file."""
        most = min(max_count, gate.most)
        # Without a filter every entry counts, but for the few that stand for lost messages.
        scan = max(1, most) if gate.codes is None else max(gate.scan, max_count)
        needed = min(
            scan,
            queue.max_offset - offset,
            self._entries_per_file - offset % self._entries_per_file,
        )
        entries = self._entries(queue, offset, needed)
        if entries is None:
            return None
        cold_before = self._writer.start + self._writer.position - self._memory_bytes
        first = int.from_bytes(entries[:8], "big", signed=True)
        start = first - first % self._file_bytes
        if start not in self._files:
            return None
        if first < cold_before:
            last = int.from_bytes(entries[-20:-12], "big", signed=True)
            stop = last + int.from_bytes(entries[-12:-8], "big", signed=True)
            if first < 0 or self._is_warm is None or not self._is_warm(first, stop):
                return None
            cold_before = 0
        gathered = gather_entries(
            entries,
            most,
            gate.bytes_max,
            most,
            gate.bytes_max,
            cold_before,
            gate.codes,
            {start: self._files[start]},
            self._file_bytes,
            self._verified_from,
            queue.topic_bytes,
            queue.queue_id,
            offset,
        )
        short = gate.codes is None and gathered.records < gathered.examined
        return gathered if gathered.whole and gathered.records and not short else None

    def _entries(self, queue: QueueTail, offset: int, needed: int) -> bytes | None:
        if offset >= queue.tail_first:
            at = (offset - queue.tail_first) * ENTRY_BYTES
            return bytes(queue.tail[at : at + needed * ENTRY_BYTES])
        for _ in range(2):
            at = (offset - queue.window_first) * ENTRY_BYTES
            stop = at + needed * ENTRY_BYTES
            if at >= 0 and stop <= len(queue.window):
                return queue.window[at:stop]
            self._look_ahead(queue, offset)
        return None


def _is_ordinary(command: Command) -> bool:
    """Whether every field is one that the general handler just takes."""
    ext = command.ext
    return (
        command.code in {PULL_MESSAGE, LITE_PULL_MESSAGE}
        and command.serializer == JSON_HEADER
        and command.flag == 0
        and not command.body
        and "consumerGroup" in ext
        and "topic" in ext
        and all(_is_integer(ext.get(name, "")) for name in (*_INT32, *_INT64))
        and all(-(1 << 31) <= int(ext[name]) < 1 << 31 for name in _INT32)
        and not int(ext["sysFlag"]) & ~_FLAGS
    )


def _is_integer(text: str) -> bool:
    """A plain decimal that fits 64 bits; anything else is for the general handler."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= 18
