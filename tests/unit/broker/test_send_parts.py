"""Parts of sending that need no broker: batches taken apart, deliveries counted in a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker_requests import batch_body, property_text
from tests.stores import message, open_store, put_all

from firearrow.broker.delays import delivered_since
from firearrow.broker.processors.send import split_batch
from firearrow.hot import StoreMessage
from firearrow.model.errors import MessageIllegal

if TYPE_CHECKING:
    from pathlib import Path

NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF), min_size=1, max_size=8)
MESSAGES = st.lists(
    st.tuples(st.binary(max_size=50), st.dictionaries(NAMES, NAMES, max_size=3)), max_size=6
)


@given(MESSAGES, st.integers(-(2**31), 2**31 - 1))
def test_batch_is_taken_apart_as_it_was_put_together(
    messages: list[tuple[bytes, dict[str, str]]], flag: int
) -> None:
    assert split_batch(batch_body(messages, flag)) == [
        (flag, body, property_text(properties).encode()) for body, properties in messages
    ]


@given(MESSAGES.filter(bool), st.data())
def test_batch_with_one_byte_missing_or_changed_is_refused_or_read_whole(
    messages: list[tuple[bytes, dict[str, str]]], data: st.DataObject
) -> None:
    body = bytearray(batch_body(messages))
    at = data.draw(st.integers(0, len(body) - 1))
    if data.draw(st.booleans()):
        del body[at:]
    else:
        body[at] ^= data.draw(st.integers(1, 255))
    try:
        found = split_batch(bytes(body))
    except MessageIllegal:
        return
    assert sum(22 + len(content) + len(own) for _, content, own in found) == len(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_refused(body: bytes) -> None:
    try:
        split_batch(body)
    except MessageIllegal as refusal:
        assert "batch" in str(refusal)  # noqa: PT017


@pytest.mark.parametrize(
    ("topic", "properties", "counted"),
    [
        ("orders", {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"}, {3: 1}),
        ("%RETRY%g", {"REAL_TOPIC": "%RETRY%g", "DELAY": "18"}, {18: 1}),
        ("SCHEDULE_TOPIC_XXXX", {"DELAY": "3", "REAL_TOPIC": "orders"}, {}),
        ("orders", {"DELAY": "3"}, {}),
        ("orders", {"REAL_TOPIC": "orders"}, {}),
        ("orders", {"REAL_TOPIC": "orders", "DELAY": "many"}, {}),
        ("orders", {"NOT_REAL_TOPIC": "orders", "DELAY": "1"}, {}),
    ],
)
async def test_delivery_is_known_by_its_record(
    tmp_path: Path, topic: str, properties: dict[str, str], counted: dict[int, int]
) -> None:
    async with open_store(tmp_path) as store:
        one = StoreMessage(topic, 0, b"x", property_text(properties).encode())
        await put_all(store, [message(), one, message()])
        assert delivered_since(store.scan(0)) == counted
