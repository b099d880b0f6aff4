"""Epochs: RocketMQ's file, and where two histories part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firearrow.base.errors import ConfigError
from firearrow.hot import crc31
from firearrow.replication.epochs import (
    FILE_NAME,
    EpochEntry,
    EpochHistory,
    common_offset,
    decode_epochs,
    encode_epochs,
)

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO, FOUR = EpochEntry(1, 0), EpochEntry(2, 400), EpochEntry(4, 900)


def history(*entries: EpochEntry) -> EpochHistory:
    made = EpochHistory()
    for entry in entries:
        made.append(entry)
    return made


def test_the_file_has_number_checksum_and_a_line_for_each_epoch() -> None:
    lines = b"1-0\n2-400\n"
    assert encode_epochs([ONE, TWO]) == b"2\n%d\n%s" % (crc31(lines), lines)


def test_a_checksum_of_zero_is_not_looked_at() -> None:
    assert decode_epochs(b"1\n0\n1-0\n") == [ONE]


@pytest.mark.parametrize(
    "raw", [b"", b"1\n", b"2\n0\n1-0\n", b"1\n5\n1-0\n", b"1\n0\n10\n", b"x\ny\n"]
)
def test_a_file_that_is_not_whole_is_not_believed(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_epochs(raw)


def test_what_was_appended_is_there_after_a_restart(tmp_path: Path) -> None:
    first = EpochHistory(tmp_path / FILE_NAME)
    first.append(ONE)
    first.append(TWO)
    second = EpochHistory(tmp_path / FILE_NAME)
    second.load()
    assert second.entries == (ONE, TWO)


def test_a_damaged_file_gives_way_to_its_backup_and_two_damaged_ones_stop_the_start(
    tmp_path: Path,
) -> None:
    path = tmp_path / FILE_NAME
    first = EpochHistory(path)
    first.append(ONE)
    first.append(TWO)
    path.write_bytes(b"rubbish")
    second = EpochHistory(path)
    second.load()
    assert second.entries == (ONE,)
    path.with_name(path.name + ".bak").write_bytes(b"rubbish")
    with pytest.raises(ConfigError):
        EpochHistory(path).load()


def test_an_epoch_never_goes_back() -> None:
    made = history(ONE, TWO)
    with pytest.raises(ValueError, match="cannot follow"):
        made.append(EpochEntry(2, 500))
    with pytest.raises(ValueError, match="cannot follow"):
        made.append(EpochEntry(3, 399))


def test_an_epoch_in_which_nothing_was_written_leaves_no_trace() -> None:
    made = history(ONE, TWO, EpochEntry(3, 400))
    assert made.entries == (ONE, EpochEntry(3, 400))


def test_a_byte_belongs_to_the_epoch_that_began_last_before_it() -> None:
    made = history(ONE, TWO, FOUR)
    assert [made.entry_at(offset).epoch for offset in (0, 399, 400, 899, 900)] == [1, 1, 2, 2, 4]
    assert (made.end_of(1), made.end_of(2), made.end_of(4)) == (400, 900, None)


def test_cutting_the_log_cuts_the_epochs_that_began_behind() -> None:
    made = history(ONE, TWO, FOUR)
    made.truncate(900)
    assert made.entries == (ONE, TWO)


def test_epochs_whose_bytes_have_expired_are_dropped_but_never_the_last() -> None:
    made = history(ONE, TWO, FOUR)
    made.drop_before(401)
    assert list(made.entries) == [TWO, FOUR]
    made.drop_before(10_000)
    assert list(made.entries) == [FOUR]


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "expected"),
    [
        ([ONE], 300, [ONE], 500, 300),
        ([ONE], 700, [ONE, TWO], 600, 400),  # we wrote on in epoch 1 when 2 had begun elsewhere
        ([ONE, TWO], 950, [ONE, TWO, FOUR], 1000, 900),
        ([ONE, EpochEntry(3, 450)], 800, [ONE, TWO], 600, 400),
        ([EpochEntry(7, 0)], 800, [ONE, TWO], 600, None),
        ([ONE], 800, [EpochEntry(2, 0)], 600, 0),  # elected before it had a byte of ours
        ([ONE], 800, [EpochEntry(2, 100)], 600, None),  # what came before has expired there
        ([ONE, EpochEntry(2, 410)], 800, [ONE, TWO], 600, 400),
    ],
)
def test_two_logs_agree_up_to_the_end_of_the_last_epoch_that_they_share(
    ours: list[EpochEntry],
    our_end: int,
    theirs: list[EpochEntry],
    their_end: int,
    expected: int | None,
) -> None:
    assert common_offset(ours, our_end, theirs, their_end) == expected
