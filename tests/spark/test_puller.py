"""Pulls of a task, against a broker that answers late, out of turn, too little, or not at all."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from firearrow.client.options import ClientOptions
from firearrow.hot import Command, Record, decode_record, encode_frame, encode_record
from firearrow.model.errors import ResponseCode
from firearrow.spark.errors import ConnectorError, DataLoss
from firearrow.spark.offsets import QueueName
from firearrow.spark.options import ReadOptions
from firearrow.spark.planning import Range
from firearrow.spark.puller import PullConnection, RangePuller
from firearrow.spark.reading import ahead
from firearrow.wire.command import FrameDecoder, reply_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUEUE = QueueName("orders", "broker-a", 0)
GIVEN = {
    "nameservers": "127.0.0.1:1",
    "subscribe": "orders",
    "fetchOffset.retryIntervalMs": "1",
    "fetchOffset.numRetries": "3",
    "pullMessages": "40",
    "pullsInFlight": "5",
}


class Peer:
    """One queue of records behind a socket; `reply` may be replaced by worse manners."""

    def __init__(self) -> None:
        self.most = 32  # records of one answer
        self.shuffle = False  # requests that come together are answered in any order
        self.hang_up_after = 0  # answers; 0: never
        self.reply: Callable[[Command, int], Command] = self.records
        self.connections = 0
        self._random = random.Random(5)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):  # a test closed it already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, suppress(ConnectionError):  # the task may be gone already
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        decoder, answered = FrameDecoder(), 0
        while chunk := connection.recv(65536):
            waiting = decoder.feed(chunk)
            if self.shuffle:
                self._random.shuffle(waiting)
            for command in waiting:
                if self.hang_up_after and answered >= self.hang_up_after:
                    self.hang_up_after = 0
                    return
                connection.sendall(encode_frame(self.reply(command, 1_000)))
                answered += 1

    def records(self, command: Command, end: int) -> Command:
        start, wanted = int(command.ext["queueOffset"]), int(command.ext["maxMsgNums"])
        stop = min(end, start + min(wanted, self.most))
        body = b"".join(
            encode_record(Record("orders", f"{offset}".encode(), queue_offset=offset))
            for offset in range(start, stop)
        )
        return answer(command, ResponseCode.SUCCESS, stop, body)


def answer(
    command: Command, code: int, following: int, body: bytes = b"", remark: str = "FOUND"
) -> Command:
    made = reply_to(command, code, body=body, remark=remark)
    made.ext.update(
        suggestWhichBrokerId="0",
        nextBeginOffset=str(following),
        minOffset="0",
        maxOffset="1000",
    )
    return made


@pytest.fixture
def peer() -> Iterator[Peer]:
    found = Peer()
    yield found
    found.close()


def pulled(peer: Peer, start: int, end: int, **given: str) -> list[int]:
    """Offsets that a task would get, in the order in which it gets them."""
    options = ReadOptions.parse(GIVEN | given, streaming=False)
    kept: list[PullConnection] = []
    puller = RangePuller(
        options,
        lambda _range, _failed: PullConnection(peer.address, ClientOptions(), 5_000),
        kept.append,
        lambda name: name,
    )
    found = []
    try:
        for one in ahead(puller.pull(Range(QUEUE, start, end)), lambda: None):
            at = 0
            while at < len(one.body):
                record = decode_record(one.body, at)
                at += record.size
                if one.range.start <= record.queue_offset < one.range.end:
                    found.append(record.queue_offset)
            one.done()
        puller.finish()
    finally:
        puller.close()
    for connection in kept:
        assert connection.outstanding == 0
        connection.close()
    return found


@pytest.mark.parametrize("most", [1, 7, 32, 40, 1_000])
def test_messages_come_in_order_however_few_an_answer_holds(peer: Peer, most: int) -> None:
    peer.most = most
    assert pulled(peer, 3, 777) == list(range(3, 777))
    assert peer.connections == 1


def test_answers_out_of_turn_are_put_in_order(peer: Peer) -> None:
    peer.shuffle = True
    assert pulled(peer, 0, 900) == list(range(900))


@pytest.mark.parametrize("answers", [1, 3, 8])
def test_a_broker_that_hangs_up_is_asked_again_for_the_rest(peer: Peer, answers: int) -> None:
    peer.hang_up_after = answers
    assert pulled(peer, 0, 900) == list(range(900))
    assert peer.connections == 2


def test_a_broker_that_keeps_hanging_up_is_given_up(peer: Peer) -> None:
    peer.close()
    with pytest.raises(ConnectorError, match="queue 0 of topic orders on broker broker-a"):
        pulled(peer, 0, 10)


def with_first(peer: Peer, *answers: Callable[[Command], Command]) -> None:
    """The first answers are special, the others as always."""
    left = list(answers)

    def reply(command: Command, end: int) -> Command:
        return left.pop(0)(command) if left else peer.records(command, end)

    peer.reply = reply


def test_a_busy_broker_is_asked_again(peer: Peer) -> None:
    with_first(peer, *([lambda one: answer(one, ResponseCode.SYSTEM_BUSY, 0)] * 3))
    assert pulled(peer, 0, 100) == list(range(100))


def test_messages_that_no_longer_match_are_skipped_as_the_broker_says(peer: Peer) -> None:
    code = ResponseCode.PULL_RETRY_IMMEDIATELY
    with_first(peer, lambda one: answer(one, code, 25, remark="NO_MATCHED_MESSAGE"))
    assert pulled(peer, 0, 100, tags="a") == list(range(25, 100))


def test_a_gap_in_the_middle_is_a_loss(peer: Peer) -> None:
    code = ResponseCode.PULL_OFFSET_MOVED
    with_first(peer, lambda one: answer(one, code, 25))
    with pytest.raises(DataLoss, match="messages 0 to 24 are lost"):
        pulled(peer, 0, 100)


def test_a_gap_in_the_middle_is_left_out_where_that_is_allowed(peer: Peer) -> None:
    code = ResponseCode.PULL_OFFSET_MOVED
    with_first(peer, lambda one: answer(one, code, 25))
    assert pulled(peer, 0, 100, failOnDataLoss="false") == list(range(25, 100))


def test_a_queue_that_ends_too_early_is_not_waited_for_for_ever(peer: Peer) -> None:
    def reply(command: Command, _: int) -> Command:
        if int(command.ext["queueOffset"]) >= 60:
            return answer(command, ResponseCode.PULL_NOT_FOUND, 60, remark="OFFSET_OVERFLOW_ONE")
        return peer.records(command, 60)

    peer.reply = reply
    with pytest.raises(DataLoss, match=r"messages \d+ to 99 are lost .the queue ends at 1000"):
        pulled(peer, 0, 100, pullTimeoutMs="10")


def test_a_refusal_is_passed_on_with_a_remedy(peer: Peer) -> None:
    def refuse(command: Command, _: int) -> Command:
        return reply_to(command, ResponseCode.SYSTEM_ERROR, remark="does not support SQL92")

    peer.reply = refuse
    with pytest.raises(ConnectorError, match=r"does not support SQL92.*enablePropertyFilter=true"):
        pulled(peer, 0, 10, sql="a > 1")


def test_nonsense_is_an_error_and_no_endless_loop(peer: Peer) -> None:
    peer.reply = lambda command, _: answer(command, ResponseCode.SUCCESS, 0, b"x")
    with pytest.raises(ConnectorError, match="does not get on"):
        pulled(peer, 0, 10)


def test_a_reader_that_stops_early_leaves_no_thread(peer: Peer) -> None:
    options = ReadOptions.parse(GIVEN, streaming=False)
    made: list[PullConnection] = []

    def connect(_: Range, __: bool) -> PullConnection:
        made.append(PullConnection(peer.address, ClientOptions(), 60_000))
        return made[-1]

    def interrupt() -> None:
        made[-1].interrupt()

    puller = RangePuller(options, connect, lambda _: None, lambda name: name)
    rows = ahead(puller.pull(Range(QUEUE, 0, 1_000)), interrupt)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert not [one for one in threading.enumerate() if one.name == "firearrow-fetch"]
    puller.close()
