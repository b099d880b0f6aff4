"""Bytes of the HA port: exact, and from any chunks."""

from __future__ import annotations

import pytest

from firearrow.replication.epochs import EpochEntry
from firearrow.replication.ha_wire import (
    EpochsOfMaster,
    FollowerDecoder,
    Greeting,
    HaProtocolError,
    MasterDecoder,
    Progress,
    ReportDecoder,
    Transfer,
    TransferDecoder,
    encode_epoch_transfer,
    encode_epochs,
    encode_greeting,
    encode_progress,
    encode_report,
    encode_transfer,
)


def test_a_report_is_eight_bytes_of_offset() -> None:
    assert encode_report(0x47D).hex() == "000000000000047d"


def test_a_transfer_begins_with_its_offset_and_its_size() -> None:
    assert encode_transfer(0x400, 0x7D).hex() == "0000000000000400" + "0000007d"


def test_a_greeting_has_the_state_two_wishes_and_the_broker_id() -> None:
    greeting = Greeting(7, from_last_file=True, is_learner=False)
    assert encode_greeting(greeting).hex() == "00000001" + "0001" + "0000" + "0000000000000007"


def test_progress_with_epochs_is_twelve_bytes() -> None:
    assert encode_progress(9).hex() == "00000002" + "0000000000000009"


def test_a_history_is_twenty_bytes_and_twelve_for_each_epoch() -> None:
    raw = encode_epochs(500, 3, [EpochEntry(1, 0), EpochEntry(3, 256)])
    assert raw.hex() == (
        "00000001" + "00000018" + "00000000000001f4" + "00000003"
        "00000001" + "0000000000000000" + "00000003" + "0000000000000100"
    )


def test_a_transfer_with_epochs_has_thirty_six_bytes_before_its_body() -> None:
    raw = encode_epoch_transfer(300, 5, EpochEntry(3, 256), 299)
    assert raw.hex() == (
        "00000002" + "00000005" + "000000000000012c" + "00000003"
        "0000000000000100" + "000000000000012b"
    )


def test_the_last_of_several_reports_counts() -> None:
    decoder = ReportDecoder()
    assert decoder.feed(encode_report(1) + encode_report(5)[:3]) == Progress(1)
    assert decoder.feed(encode_report(5)[3:7]) is None
    assert decoder.feed(encode_report(5)[7:]) == Progress(5)


@pytest.mark.parametrize(
    ("decoder", "raw"),
    [
        (TransferDecoder(), encode_transfer(-1, 5)),
        (TransferDecoder(), encode_transfer(0, -5)),
        (TransferDecoder(), encode_transfer(0, 1 << 30)),
        (TransferDecoder(), b"GET / HTTP/1.1\r\n\r\n"),
        (FollowerDecoder(), b"\0\0\0\x09" + bytes(20)),
        (FollowerDecoder(), encode_progress(-2)),
        (MasterDecoder(), b"\0\0\0\x03" + bytes(40)),
        (MasterDecoder(), b"\0\0\0\x01" + (13).to_bytes(4, "big") + bytes(40)),
        (MasterDecoder(), encode_epoch_transfer(0, 1 << 30, EpochEntry(1, 0), 0)),
    ],
)
def test_what_is_no_frame_is_named_and_never_waited_for(
    decoder: TransferDecoder | FollowerDecoder | MasterDecoder, raw: bytes
) -> None:
    with pytest.raises(HaProtocolError):
        list(decoder.feed(raw))


def test_a_slave_before_the_beginning_of_the_log_is_no_slave() -> None:
    with pytest.raises(HaProtocolError, match="offset -1"):
        ReportDecoder().feed(encode_report(-1))


def test_a_heartbeat_is_a_transfer_of_nothing() -> None:
    assert list(TransferDecoder().feed(encode_transfer(77, 0))) == [Transfer(77, b"")]


def test_what_a_master_says_first_is_its_history() -> None:
    entries = (EpochEntry(1, 0), EpochEntry(2, 64))
    found = list(MasterDecoder().feed(encode_epochs(99, 2, entries)))
    assert found == [EpochsOfMaster(99, 2, entries)]
