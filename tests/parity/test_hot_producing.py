"""What producers write and read: the compiled and the plain twin agree to the byte."""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.hot import reference

native: Any = pytest.importorskip(
    "firearrow.hot.native", reason="no compiled twin here: there was no C compiler at install"
)

names = st.text(st.sampled_from('ab火"\\\n\x01\x02\x1f\ud800é'), max_size=5)
properties = st.dictionaries(names, names, max_size=4)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)


@given(
    form=st.tuples(*[st.text(st.sampled_from('ab火"\\\n\x1f%'), max_size=5)] * 3),
    brokers=st.lists(st.text(st.sampled_from('ab"火'), max_size=3), min_size=1, max_size=3),
    properties=properties,
    body=st.binary(max_size=20),
    opaque=st.integers(0, (1 << 31) - 1),
    born_ms=st.integers(0, 1 << 50),
    numbers=st.tuples(int32, int32, int32),
    batch=st.booleans(),
)
def test_send_requests_are_the_same_bytes(
    form: tuple[str, str, str], brokers: list[str], numbers: tuple[int, int, int], **rest: Any
) -> None:
    theirs, ours = native.SendForm(*form), reference.SendForm(*form)
    queue_id, sys_flag, flag = numbers
    for broker in brokers:
        arguments: Any = (broker, queue_id, rest["properties"], rest["body"], rest["opaque"])
        arguments += (rest["born_ms"], sys_flag, flag, rest["batch"])
        assert theirs.frame(*arguments) == ours.frame(*arguments)


@pytest.mark.parametrize(
    "odd", [{"a": 1}, {1: "a"}, {"a": "x" * 32_764}, {"a": "x" * 32_765}, {"a": ""}, {"": "a"}]
)
def test_properties_that_cannot_travel_are_left_alike(odd: dict[str, str]) -> None:
    fits = len(str(odd.get("a"))) == 32_764
    for twin in (reference, native):
        frame = twin.SendForm("g", "t", "4").frame("b", 0, odd, b"x", 1, 2, 3, 4, False)
        assert (frame is not None) == fits
        assert (twin.encode_messages([Sendable(b"x", 0, odd)], 0, 99) is not None) == fits


class Sendable(NamedTuple):
    body: Any
    flag: Any
    properties: dict[str, str]


messages = st.builds(
    Sendable,
    st.binary(max_size=30) | st.sampled_from([b"x" * 70_000]),
    int32 | st.just(1 << 40),
    st.dictionaries(st.text("ab", min_size=1, max_size=2), st.text("x火\x01", max_size=3)),
)
usual = st.builds(
    Sendable,
    st.binary(min_size=1, max_size=30),
    int32,
    st.dictionaries(st.text("ab", min_size=1, max_size=2), st.text("x火", min_size=1, max_size=3)),
)


@given(st.lists(usual, max_size=6) | st.lists(messages, max_size=4), st.integers(0, 150))
def test_batches_are_the_same_bytes(batch: list[Sendable], bytes_max: int) -> None:
    start = 0
    while start < len(batch):
        expected = reference.encode_messages(batch, start, bytes_max)
        assert native.encode_messages(batch, start, bytes_max) == expected
        if expected is None:
            return
        body, start = expected
        assert len(body) <= bytes_max or reference.count_parts(body, 0) == 1
    assert native.encode_messages(tuple(batch), start, 9) == (b"", start)


@given(
    st.sampled_from(["", "0A000007", "ö"]),
    st.integers(-3, 1 << 17),
    st.integers(0, 300),
)
def test_keys_are_numbered_alike(head: str, first: int, count: int) -> None:
    expected = reference.number_keys(head, first, first + count)
    assert native.number_keys(head, first, first + count) == expected


# --- receipts -----------------------------------------------------------------------------------


class Queue(NamedTuple):
    queue_id: int


class Receipt(NamedTuple):
    status: object
    msg_id: str
    offset_msg_id: str
    queue: Queue
    queue_offset: int
    transaction_id: str | None
    recall_handle: str | None
    region_id: str
    trace_on: bool


class Waiter:
    def __init__(self) -> None:
        self.got: list[object] = []

    def done(self) -> bool:
        return len(self.got) > 1

    def set_result(self, value: object) -> None:
        self.got.append(value)


def reading(twin: Any, data: bytes) -> tuple[int, list[object], list[int]]:
    """What a reader makes of some bytes, when sends 0 to 4 and another request, 5, are open."""
    waiter = Waiter()
    pending: dict[int, Any] = {n: (waiter, 1, 2, (f"ID{n}", Queue(n % 2))) for n in range(5)}
    pending[5] = (waiter, 1, 2, None)
    used = twin.ReceiptReader(Receipt, "OK").take(data, pending)
    return used, waiter.got, sorted(pending)


def answer(header: dict[str, object], body: bytes = b"") -> bytes:
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return struct.pack(">iI", 4 + len(raw) + len(body), len(raw)) + raw + body


usual_fields = st.fixed_dictionaries(
    {"queueId": st.sampled_from(["0", "1"]), "msgId": st.sampled_from(["0A0B", "ÄÖ", 'x"', ""])},
    optional={
        "queueOffset": st.sampled_from(["0", "7", "123456789012345678", "-1", "", "x", "1e3"]),
        "MSG_REGION": st.sampled_from(["DefaultRegion", "eu", ""]),
        "TRACE_ON": st.sampled_from(["true", "false", ""]),
        "transactionId": st.sampled_from(["ID0", "ID1", "T", ""]),
        "recallHandle": st.just("R"),
    },
)
headers = st.fixed_dictionaries(
    {
        "code": st.sampled_from([0] * 9 + [10]),
        "extFields": usual_fields,
        "flag": st.sampled_from([1] * 9 + [3, 0]),
        "opaque": st.integers(0, 7),
    },
    optional={
        "language": st.sampled_from(["JAVA", "GO"]),
        "serializeTypeCurrentRPC": st.just("JSON"),
        "version": st.sampled_from([479, 0]),
        "remark": st.sampled_from(["a", None]),
    },
)


def plain(opaque: int, **fields: str) -> bytes:
    ext = {"queueId": str(opaque % 2), "queueOffset": "9", "msgId": "0A0B", **fields}
    return answer({"code": 0, "extFields": ext, "flag": 1, "opaque": opaque})


@given(st.lists(headers, max_size=4), st.binary(max_size=8), st.integers(0, 40))
@settings(max_examples=300)
def test_compiled_reader_takes_what_the_plain_one_takes_or_leaves_it(
    given_headers: list[dict[str, object]], rest: bytes, cut: int
) -> None:
    whole = b"".join(map(answer, given_headers)) + rest
    data = whole[: max(0, len(whole) - cut)]
    used, got, left = reading(native, data)
    expected = reading(reference, data)
    assert used <= expected[0]
    # Where the compiled one stopped, the plain one goes on, and both came to the same.
    assert reading(reference, data[:used]) == (used, got, left)


def test_usual_answers_are_taken_by_both_as_far_as_they_are_whole() -> None:
    data = (
        plain(0)
        + plain(3, MSG_REGION="eu", TRACE_ON="false", transactionId="T")
        + plain(4)
        + plain(1)
    )
    for twin in (reference, native):
        used, got, left = reading(twin, data + plain(2)[:-1])
        assert used == len(data)
        assert got[:2] == [
            Receipt("OK", "ID0", "0A0B", Queue(0), 9, None, None, "DefaultRegion", True),
            Receipt("OK", "ID3", "0A0B", Queue(1), 9, "T", None, "eu", False),
        ]
        assert len(got) == 2  # the others have given up
        assert left == [2, 5]


@pytest.mark.parametrize(
    "left",
    [
        plain(5),  # nobody's send
        plain(9),
        plain(0, recallHandle="R"),
        plain(0, queueId="1"),  # another queue than it was sent to
        plain(0, queueOffset="x"),
        answer({"code": 2, "extFields": {"queueId": "0"}, "flag": 1, "opaque": 0}),
        answer({"code": 0, "extFields": {}, "flag": 1, "opaque": 0}),
        plain(0)[:-1] + b"x",
        b"",
        bytes(4),
        bytes(8),
        b"\xff" * 9,
        b"\x7f" * 20,
    ],
)
def test_everything_else_is_left_alike(left: bytes) -> None:
    for twin in (reference, native):
        assert reading(twin, plain(1) + left)[0] == len(plain(1))
        assert reading(twin, plain(1) + left)[2] == [0, 2, 3, 4, 5]
