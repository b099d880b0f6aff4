from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard
from tests.store_builder import inner_batch

from firearrow.hot import Record
from firearrow.model.inner_batch import split_inner_batch
from firearrow.offline.payload import messages_of

TEXT = b"a body that is worth packing " * 40
PACKED = {
    "zlib": zlib.compress(TEXT),
    "lz4": lz4.frame.compress(TEXT),
    "zstd": zstandard.ZstdCompressor().compress(TEXT),
}
FLAGS = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}


@pytest.mark.parametrize("kind", PACKED)
def test_a_packed_body_is_unpacked(kind: str) -> None:
    (message,) = messages_of(Record("T", PACKED[kind], sys_flag=FLAGS[kind]))
    assert (message.body, message.note) == (TEXT, "")


def test_a_packed_body_without_a_kind_is_zlib_as_old_producers_send_it() -> None:
    (message,) = messages_of(Record("T", PACKED["zlib"], sys_flag=0x1))
    assert message.body == TEXT


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("cut", [1, 9, 30])
def test_a_body_cut_short_stays_as_stored_with_a_note(kind: str, cut: int) -> None:
    body = PACKED[kind][:-cut]
    (message,) = messages_of(Record("T", body, sys_flag=FLAGS[kind]))
    assert message.body == body
    assert message.note.startswith("body as stored: ")


@pytest.mark.parametrize("kind", PACKED)
def test_a_body_that_is_something_else_stays_as_stored_with_a_note(kind: str) -> None:
    (message,) = messages_of(Record("T", b"plain", sys_flag=FLAGS[kind]))
    assert message.body == b"plain"
    assert kind in message.note


def test_an_unknown_kind_of_packing_is_noted() -> None:
    (message,) = messages_of(Record("T", b"?", sys_flag=0x701))
    assert message.note == "body as stored: unknown compression"


def test_an_inner_batch_is_taken_apart() -> None:
    record = Record("T", inner_batch(b"one", b"", b"three"), sys_flag=0xC0, queue_offset=40)
    messages = messages_of(record)
    assert [message.body for message in messages] == [b"one", b"", b"three"]
    assert [message.queue_offset for message in messages] == [40, 41, 42]
    assert [message.inner_index for message in messages] == [0, 1, 2]
    assert [message.flag for message in messages] == [0, 1, 2]
    assert messages[2].properties == {"KEYS": "inner-2"}


def test_a_packed_inner_batch_is_unpacked_and_taken_apart() -> None:
    body = zlib.compress(inner_batch(b"one", b"two"))
    messages = messages_of(Record("T", body, sys_flag=0xC0 | 0x301))
    assert [message.body for message in messages] == [b"one", b"two"]


def test_an_inner_batch_cut_anywhere_is_shown_whole_with_a_note() -> None:
    whole = inner_batch(b"one", b"two")
    first = len(inner_batch(b"one"))
    for size in range(1, len(whole)):
        if size == first:
            continue  # a smaller batch
        (message,) = messages_of(Record("T", whole[:size], sys_flag=0xC0))
        assert message.body == whole[:size]
        assert "not an inner batch" in message.note
        assert split_inner_batch(whole[:size]) is None
