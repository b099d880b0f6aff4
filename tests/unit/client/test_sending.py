"""From messages to requests and from answers to receipts."""

from __future__ import annotations

import base64
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker_requests import batch_body

from firearrow.base.errors import FirearrowError
from firearrow.client.errors import InvalidMessage
from firearrow.client.message import Message
from firearrow.client.sending import (
    Batch,
    SendStatus,
    batch_envelope,
    broker_of_recall_handle,
    check_batch,
    check_message,
    encode_batches,
    envelope,
    receipt_of,
    send_command,
)
from firearrow.model import message as names
from firearrow.model.errors import ResponseCode, SystemBusy
from firearrow.model.topic import MessageQueue
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command
from firearrow.wire.headers import SendMessageRequestV2

QUEUE = MessageQueue(topic="t", broker_name="b", queue_id=3)
words = st.sampled_from(["a", "bc", "zwölf", "日本", "with space", "\t", "x" * 40])


def message(body: bytes | str = b"x", topic: str = "t", **more: object) -> Message:
    one = Message(topic, body, **more)  # type: ignore[arg-type]
    one.properties[names.UNIQ_KEY] = "ID"
    return one


@st.composite
def messages(draw: st.DrawFn) -> Message:
    properties = draw(st.dictionaries(words.map("p-{}".format), words, max_size=3))
    one = Message("t", draw(st.binary(min_size=1, max_size=60)), properties=properties)
    one.flag = draw(st.integers(-5, 5))
    one.properties[names.UNIQ_KEY] = f"{draw(st.integers(0, 1 << 32)):032X}"
    return one


def encoded(batch: list[Message], limit: int, *, split: bool = True) -> list[Batch]:
    ids = [one.properties[names.UNIQ_KEY] for one in batch]
    return encode_batches(batch, ids, limit, split=split)


@given(st.lists(messages(), min_size=1, max_size=8))
def test_batches_are_encoded_as_brokers_read_them(batch: list[Message]) -> None:
    (part,) = encoded(batch, 1 << 20)
    packed = batch_envelope(part, "t")
    expected = b"".join(batch_body([(one.body, one.properties)], one.flag) for one in batch)
    assert packed.body == expected
    assert packed.msg_id.split(",") == [one.msg_id for one in batch]
    assert packed.batch


@given(st.lists(messages(), min_size=1, max_size=12), st.integers(100, 700))
def test_split_batches_fit_and_keep_their_order(batch: list[Message], limit: int) -> None:
    sizes = [len(encoded([one], 1 << 20)[0].body) for one in batch]
    if max(sizes) > limit:
        with pytest.raises(InvalidMessage, match=f"the limit is {limit}"):
            encoded(batch, limit)
        return
    parts = encoded(batch, limit)
    assert [one for part in parts for one in part.messages] == batch
    assert [one for part in parts for one in part.msg_ids.split(",")] == [
        one.msg_id for one in batch
    ]
    assert all(len(part.body) <= limit for part in parts)
    assert all(
        len(first.body) + len(encoded([then.messages[0]], 1 << 20)[0].body) > limit
        for first, then in pairwise(parts)
    )
    if len(parts) > 1:
        with pytest.raises(InvalidMessage, match="split=True"):
            encoded(batch, limit, split=False)


@pytest.mark.parametrize(
    ("odd", "problem"),
    [
        (message(properties={"a": "\x02"}), "separators"),
        (message(properties={"a": "\ud800"}), "UTF-8"),
        (message(tags=5), "TAGS"),
        (message(b""), "empty"),
        (message(flag=1 << 40), "flag"),
    ],
)
def test_a_message_that_cannot_be_encoded_spoils_its_batch(odd: Message, problem: str) -> None:
    with pytest.raises(InvalidMessage, match=problem):
        encoded([message(), odd], 1 << 20)


def test_requests_read_as_their_header_says() -> None:
    one = message("text", tags="a", flag=7, wait_stored=False)
    packed = envelope(one, "t", one.body, 1)
    command = send_command(packed, QUEUE, group="g", born_ms=99, creation_queue_nums="4")
    header = SendMessageRequestV2.from_ext(command.ext)
    assert command.code == RequestCode.SEND_MESSAGE_V2
    assert (header.producer_group, header.topic, header.queue_id) == ("g", "t", 3)
    assert (header.sys_flag, header.flag, header.born_timestamp) == (1, 7, 99)
    assert header.reconsume_times == 0
    assert not header.batch
    assert command.ext["n"] == "b"
    assert "WAIT\x01false" in command.ext["i"]
    assert (
        send_command(packed, QUEUE, group="g", born_ms=1, creation_queue_nums="4", oneway=True).flag
        & 2
    )


def test_counts_of_a_retry_travel_beside_its_properties() -> None:
    one = message(topic="%RETRY%g")
    one.properties |= {names.RECONSUME_TIME: "3", names.MAX_RECONSUME_TIMES: "16"}
    packed = envelope(one, one.topic, one.body, 0)
    assert (packed.reconsume_times, packed.max_reconsume_times) == ("3", "16")
    assert names.RECONSUME_TIME not in packed.properties
    assert one.properties[names.RECONSUME_TIME] == "3"  # for the next try


def test_replies_have_a_request_of_their_own() -> None:
    one = message()
    one.properties[names.MESSAGE_TYPE] = "reply"
    assert envelope(one, "t", b"x", 0).code == RequestCode.SEND_REPLY_MESSAGE_V2


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, SendStatus.SEND_OK),
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_all_four_states_of_a_stored_message_are_told(code: int, status: SendStatus) -> None:
    one = message()
    answer = Command(code, {"msgId": "OFFSET", "queueId": "3", "queueOffset": "12"})
    receipt = receipt_of(answer, envelope(one, "t", b"x", 0), "t", "b")
    assert receipt.status is status
    assert receipt.ok == (status is SendStatus.SEND_OK)
    assert (receipt.msg_id, receipt.offset_msg_id) == ("ID", "OFFSET")
    assert (receipt.queue, receipt.queue_offset) == (QUEUE, 12)


def test_a_refusal_is_raised_with_the_words_of_the_broker() -> None:
    answer = Command(ResponseCode.SYSTEM_BUSY, {})
    answer.remark = "too many"
    with pytest.raises(SystemBusy, match="too many") as caught:
        receipt_of(answer, envelope(message(), "t", b"x", 0), "t", "b")
    assert caught.value.retriable


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ([], "at least one"),
        ([message(), message(topic="other")], "one topic"),
        ([message(delay_level=1)], "delayed"),
        ([message(delay_ms=5)], "delayed"),
        ([message(topic="%RETRY%g")], "retry topic"),
        ([message(), message(wait_stored=False)], "wait for the disk"),
    ],
)
def test_what_cannot_travel_together_is_refused(batch: list[Message], problem: str) -> None:
    with pytest.raises(InvalidMessage, match=problem):
        check_batch(batch)


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: check_message(Message("", b"x"), 9), "topic"),
        (lambda: check_message(Message("a b", b"x"), 9), "topic"),
        (lambda: check_message(Message("t" * 128, b"x"), 9), "topic"),
        (lambda: check_message(Message("RMQ_SYS_TRANS_HALF_TOPIC", b"x"), 9), "broker writes"),
        (lambda: check_message(Message("t", b""), 9), "empty"),
        (lambda: check_message(Message("t", b"x" * 10), 9), "limit is 9"),
        (lambda: Message("t", 5), "bytes or text"),  # type: ignore[arg-type]
        (lambda: Message("t", b"x", properties={"TAGS": "a"}), "RocketMQ's own"),
        (lambda: Message("t", b"x", properties={"a": 1}), "are text"),  # type: ignore[dict-item]
        (lambda: Message("t", b"x", delay_level=-1), "begin at 1"),
        (lambda: envelope(message(properties={"a": "\x02"}), "t", b"", 0), "a"),
        (lambda: envelope(message(tags=5), "t", b"", 0), "TAGS"),
        (lambda: envelope(message(properties={"a": "x" * 32_767}), "t", b"", 0), "32767"),
    ],
)
def test_what_no_broker_takes_is_refused_before_it_is_sent(build: object, problem: str) -> None:
    assert callable(build)
    with pytest.raises(InvalidMessage, match=problem) as caught:
        build()
    assert isinstance(caught.value, FirearrowError)
    assert (caught.value.code, caught.value.retriable) == (13, False)


def test_recall_handles_name_their_broker() -> None:
    handle = base64.urlsafe_b64encode(b"v1 topic broker-a 99 ID").decode()
    assert broker_of_recall_handle(handle) == "broker-a"
    for bad in ("!", "x", base64.urlsafe_b64encode(b"v2 a b c d").decode(), ""):
        assert broker_of_recall_handle(bad) is None


def test_messages_keep_what_they_are_given() -> None:
    one = Message(
        "t", bytearray(b"ab"), keys=("a", "b"), delay_level=3, sharding_key="s", wait_stored=False
    )
    assert (one.body, one.keys, one.delay_level) == (b"ab", ("a", "b"), 3)
    assert (one.sharding_key, one.wait_stored, one.msg_id) == ("s", False, None)
    assert Message("t", memoryview(b"ab")).text == "ab"
    assert "2 bytes" in repr(one)
