"""Pulling ranges of queues for a task: one blocking connection, several pulls in flight.

    ask [0,1024) ask [1024,2048) ... │ answer [0,860) → ask [860,1024) │ answer [1024,1884) → ...
                                     └ handed on in the order of offsets, whoever answers first

There is no event loop: a task does one thing at a time, and at hundreds of thousands of messages a
second every turn would cost. Answers are received into buffers that go round; see `Pulled.done`.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import FirearrowError, PeerProtocolError
from firearrow.hot import decode_frames, encode_frame
from firearrow.model.errors import ResponseCode, error_for
from firearrow.model.group import SQL92, TAG
from firearrow.net.client import split_address
from firearrow.spark.errors import ConnectorError, DataLoss
from firearrow.spark.options import READER_GROUP, SUBSCRIBE_ALL
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import FRAME_BYTES_MAX, HEADER_BYTES_MAX, Command, request
from firearrow.wire.headers import PullFlag, PullMessageReply, PullMessageRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from firearrow.client.options import ClientOptions
    from firearrow.spark.options import ReadOptions
    from firearrow.spark.planning import Range

log = logging.getLogger(__name__)

_WORDS: Final = struct.Struct(">II")
_TIME: Final = struct.Struct("@ll")  # timeval
BLOCK_BYTES: Final = 2 << 20
BLOCKS_KEPT: Final = 4
RECEIVE_BYTES: Final = 4 << 20  # asked of the kernel, which may give less
FULL_PULLS_BEFORE_MORE: Final = 64
PAUSE_MS: Final = (5, 10, 20, 50, 100, 200, 500, 1000)
REMOVING: Final = "MESSAGE_WAS_REMOVING"
BUSY: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.SERVICE_NOT_AVAILABLE}
)


class Block:
    """Memory that answers are received into; it goes round once nobody looks at it."""

    __slots__ = ("raw", "users")

    def __init__(self, size: int) -> None:
        self.raw = bytearray(size)
        self.users = 0


class PullConnection:
    """One socket to a broker, used by one thread at a time.

    Whatever the kernel has is taken in one call, also when it is many answers:

        block  | done | answer | answer | part of an ans|........|
                      ^ start                           ^ fill
    """

    def __init__(self, address: str, options: ClientOptions, timeout_ms: int) -> None:
        self.address = address
        self._options = options
        self._opaque = 0
        self._spare: deque[Block] = deque()
        self._block = Block(BLOCK_BYTES)
        self._start = self._fill = 0
        self.outstanding = 0
        self.usable = True
        raw = socket.create_connection(split_address(address), timeout_ms / 1000)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._socket: socket.socket = raw
        if options.tls is not None:
            self._socket = options.tls.wrap_socket(raw, server_hostname=split_address(address)[0])
        else:
            # The kernel watches the clock: Python's own timeouts cost a second call for each.
            seconds, rest = divmod(timeout_ms, 1000)
            raw.settimeout(None)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIME.pack(seconds, rest * 1000))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(seconds, rest * 1000))

    def close(self) -> None:
        self.usable = False
        self._socket.close()

    def interrupt(self) -> None:
        """From another thread: whoever waits here gets an error."""
        self.usable = False
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("%s had hung up already", self.address)

    def ask(self, header: PullMessageRequest) -> int:
        """Send a pull; its answer carries the number returned here."""
        self._opaque += 1
        command = self._options.decorate(request(RequestCode.PULL_MESSAGE, header))
        command.opaque = self._opaque
        self._socket.sendall(encode_frame(command))
        self.outstanding += 1
        return self._opaque

    def answer(self) -> tuple[Command, Block, memoryview]:
        """The next answer: its head, the block that it lies in, and its body there."""
        need = _WORDS.size
        while True:
            while self._fill - self._start < need:
                self._receive(need)
            length, word = _WORDS.unpack_from(self._block.raw, self._start)
            head = word & 0xFFFFFF
            if not (4 + head <= length < FRAME_BYTES_MAX and head < HEADER_BYTES_MAX):
                raise PeerProtocolError(f"broker {self.address} sent a frame of {length} bytes")
            if self._fill - self._start >= 4 + length:
                break
            need = 4 + length
        block, body = self._block, self._start + _WORDS.size + head
        end = self._start + 4 + length
        # The decoder is for whole frames: it gets one without the body, which stays where it is.
        front = bytearray(memoryview(block.raw)[self._start : body])
        _WORDS.pack_into(front, 0, 4 + head, word)
        commands, _, bad = decode_frames(front, FRAME_BYTES_MAX, HEADER_BYTES_MAX)
        if bad or len(commands) != 1:
            raise PeerProtocolError(f"broker {self.address} sent a broken frame: {bad}")
        self._start = end
        self.outstanding -= 1
        block.users += 1
        return commands[0], block, memoryview(block.raw)[body:end]

    def _receive(self, need: int) -> None:
        """More bytes; a frame that does not fit behind the others moves to another block."""
        if self._start + need > len(self._block.raw):
            rest = memoryview(self._block.raw)[self._start : self._fill]
            old, self._block = self._block, self._new_block(need)
            self._block.raw[: len(rest)] = rest
            self._start, self._fill = 0, len(rest)
            rest.release()
            self._spare.append(old)
        with memoryview(self._block.raw) as view, view[self._fill :] as room:
            try:
                got = self._socket.recv_into(room)
            except BlockingIOError:
                raise TimeoutError(f"broker {self.address} did not answer in time") from None
        if not got:
            raise ConnectionResetError(f"broker {self.address} hung up")
        self._fill += got

    def _new_block(self, size: int) -> Block:
        """One that nobody uses any more, or a new one; the oldest are free first."""
        for _ in range(len(self._spare)):
            found = self._spare.popleft()
            if found.users == 0 and len(found.raw) >= size:
                return found
            if found.users or len(self._spare) < BLOCKS_KEPT:
                self._spare.append(found)
        return Block(max(BLOCK_BYTES, size))


class Pulled:
    """Records of one range, as an answer brought them."""

    __slots__ = ("_block", "body", "delta", "range")

    def __init__(self, wanted: Range, block: Block, body: memoryview, delta: int) -> None:
        self.range = wanted  # what is outside of it was not asked for
        self.body = body
        self.delta = delta
        self._block = block

    def done(self) -> None:
        """The records have been copied."""
        self.body.release()
        self._block.users -= 1  # one thread adds, the other subtracts, under the one lock of Python


class Segment:
    """Part of a range; `next` is where its next pull begins."""

    __slots__ = ("end", "found", "next", "pauses")

    def __init__(self, start: int, end: int) -> None:
        self.next = start
        self.end = end
        self.found: deque[Pulled] = deque()
        self.pauses = 0


class RangePuller:
    """Pulls ranges of one broker over one connection at a time.

    Args:
        options: How many at once, how long to wait, which messages.
        connect: Opens a connection; after a failure to wherever the broker is by then.
        give_back: Takes connections that are in order.
    """

    def __init__(
        self,
        options: ReadOptions,
        connect: Callable[[Range, bool], PullConnection],
        give_back: Callable[[PullConnection], None],
        wrap: Callable[[str], str],
    ) -> None:
        self._options = options
        self._connect = connect
        self._give_back = give_back
        self._wrap = wrap
        self._step = options.pull_messages
        self._full_pulls = 0
        self.connection: PullConnection | None = None

    def pull(self, wanted: Range) -> Iterator[Pulled]:
        """The records of a range, in order; neighbours may come along."""
        work = _Work(wanted)
        failures = 0
        while True:
            try:
                for pulled in self._run(work):
                    failures = 0
                    yield pulled
            except (OSError, ssl.SSLError, PeerProtocolError) as error:
                self.close()
                failures += 1
                if failures > self._options.retries:
                    raise ConnectorError(
                        f"{wanted.queue}: its messages from {work.position} on cannot be pulled: "
                        f"{error}. Check the broker, or give it more time (pullTimeoutMs, "
                        "fetchOffset.numRetries)"
                    ) from error
                log.warning("%s: pulling failed, once more: %s", wanted.queue, error)
                time.sleep(min(5_000, self._options.retry_interval_ms * 2**failures) / 1000)
                work.lost_answers()
            else:
                return

    def finish(self) -> None:
        """All is pulled: the connection may serve others."""
        connection, self.connection = self.connection, None
        if connection is not None:
            if connection.outstanding:
                connection.close()
            else:
                self._give_back(connection)

    def close(self) -> None:
        """Something is wrong, or nobody wants the rest."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def _run(self, work: _Work) -> Iterator[Pulled]:
        if self.connection is None:
            self.connection = self._connect(work.range, work.failed)
        connection = self.connection
        for segment in work.segments:
            if segment.next < segment.end:
                self._ask(connection, work, segment)
        while True:
            while len(work.asked) < self._options.pulls_in_flight:
                new = work.new_segment(self._step)
                if new is None:
                    break
                self._ask(connection, work, new)
            yield from work.ready()
            if not work.segments:
                return
            command, block, body = connection.answer()
            if command.opaque not in work.asked:
                raise PeerProtocolError(f"broker {connection.address} answers what nobody asked")
            asked = work.asked.pop(command.opaque)
            self._take(connection, work, asked, command, block, body)

    def _ask(self, connection: PullConnection, work: _Work, segment: Segment) -> None:
        options, queue = self._options, work.range.queue
        header = PullMessageRequest(
            consumer_group=self._wrap(options.group or READER_GROUP),
            topic=self._wrap(queue.topic),
            queue_id=queue.queue_id,
            queue_offset=segment.next,
            max_msg_nums=segment.end - segment.next,
            sys_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=options.sql or options.tags or SUBSCRIBE_ALL,
            sub_version=0,
            expression_type=SQL92 if options.sql else TAG,
        )
        work.asked[connection.ask(header)] = segment

    def _take(  # noqa: PLR0917 - one answer
        self,
        connection: PullConnection,
        work: _Work,
        segment: Segment,
        command: Command,
        block: Block,
        body: memoryview,
    ) -> None:
        """What an answer means for its segment."""
        code = command.code
        if code == ResponseCode.SUCCESS:
            following = _number(command, "nextBeginOffset")
            if following <= segment.next:
                raise PeerProtocolError(f"{work.range.queue}: a pull does not get on")
            wanted = work.range._replace(start=segment.next, end=segment.end)
            delta = _number(command, "offsetDelta") if "offsetDelta" in command.ext else 0
            segment.found.append(Pulled(wanted, block, body, delta))
            self._learn(segment, following)
            segment.next = following
            segment.pauses = 0
        else:
            block.users -= 1
            self._nothing(work, segment, command)
        if segment.next < segment.end:
            self._ask(connection, work, segment)

    def _learn(self, segment: Segment, following: int) -> None:
        """How many messages one answer holds: 32 on a stock broker, what fits 1 MiB on ours."""
        if self._options.filtered:
            return
        if following < segment.end:
            self._step = max(1, following - segment.next)
            self._full_pulls = 0
        else:
            self._full_pulls += 1
            if self._full_pulls >= FULL_PULLS_BEFORE_MORE:
                self._full_pulls = 0
                self._step = min(self._options.pull_messages, self._step + self._step // 4 + 1)

    def _nothing(self, work: _Work, segment: Segment, command: Command) -> None:
        """An answer without messages: none that we want, gone, not there yet, or a refusal."""
        code, queue = command.code, work.range.queue
        if code in BUSY:
            self._pause(work, segment, command.remark or "the broker is busy")
            return
        if code not in {
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        }:
            error = error_for(code, command.remark)
            raise ConnectorError(self._refusal(queue, error)) from error
        reply = PullMessageReply.from_ext(command.ext)
        following = reply.next_begin_offset
        if code == ResponseCode.PULL_RETRY_IMMEDIATELY and following > segment.next:
            if command.remark == REMOVING:
                self._lost(work, segment.next, min(following, segment.end))
            segment.next = following
        elif code == ResponseCode.PULL_OFFSET_MOVED and following > segment.next:
            self._lost(work, segment.next, min(following, segment.end))
            segment.next = following
        else:
            # At the queue's end, which was further when the query was planned.
            said = f"the queue ends at {reply.max_offset}, {segment.next} is not there"
            self._pause(work, segment, said)

    def _pause(self, work: _Work, segment: Segment, why: str) -> None:
        """Wait a little, longer each time; not for ever."""
        waited_ms = sum(PAUSE_MS[min(n, len(PAUSE_MS) - 1)] for n in range(segment.pauses))
        if waited_ms >= self._options.pull_timeout_ms:
            self._lost(work, segment.next, segment.end, why)
            segment.next = segment.end
            return
        time.sleep(PAUSE_MS[min(segment.pauses, len(PAUSE_MS) - 1)] / 1000)
        segment.pauses += 1

    def _lost(self, work: _Work, start: int, end: int, why: str = "") -> None:
        report_loss(work.range.queue, start, end, fail=self._options.fail_on_data_loss, why=why)

    def _refusal(self, queue: object, error: FirearrowError) -> str:
        text = f"{queue}: the broker refuses the pull: {error}"
        if self._options.sql and error.code in {1, 24}:
            return f"{text}. The option 'sql' needs enablePropertyFilter=true on the broker"
        return f"{text}. {error.remedy}"


class _Work:
    """How far a range is."""

    def __init__(self, wanted: Range) -> None:
        self.range = wanted
        self.segments: deque[Segment] = deque()
        self.asked: dict[int, Segment] = {}
        self.failed = False
        self._planned = wanted.start

    @property
    def position(self) -> int:
        return self.segments[0].next if self.segments else self._planned

    def new_segment(self, step: int) -> Segment | None:
        if self._planned >= self.range.end:
            return None
        segment = Segment(self._planned, min(self.range.end, self._planned + step))
        self._planned = segment.end
        self.segments.append(segment)
        return segment

    def ready(self) -> Iterator[Pulled]:
        """What can be handed on without disorder."""
        while self.segments:
            first = self.segments[0]
            while first.found:
                yield first.found.popleft()
            if first.next < first.end:
                return
            self.segments.popleft()

    def lost_answers(self) -> None:
        """The connection is gone: whatever was asked must be asked again."""
        self.asked.clear()
        self.failed = True


def _number(command: Command, name: str) -> int:
    """A field of an answer, without looking at the others: this is done for every pull."""
    try:
        return int(command.ext[name])
    except (KeyError, ValueError):
        raise PeerProtocolError(f"an answer to a pull has no {name}") from None


def report_loss(queue: object, start: int, end: int, *, fail: bool, why: str = "") -> None:
    """Messages that should be read are gone: an error, or with failOnDataLoss=false a warning."""
    text = (
        f"{queue}: messages {start} to {end - 1} are lost"
        f"{f' ({why})' if why else ' (retention removed them, or the topic was created anew)'}"
    )
    if fail:
        raise DataLoss(
            f"{text}. Set failOnDataLoss=false to go on without them, start from other offsets "
            "with a new checkpoint, or have the broker keep messages longer (fileReservedTime)"
        )
    log.warning("%s; going on without them", text)
