"""HA frames survive any chunking; histories never agree on more than both have."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from firearrow.replication.epochs import (
    EpochEntry,
    EpochHistory,
    common_offset,
    decode_epochs,
    encode_epochs,
)
from firearrow.replication.ha_wire import (
    FollowerDecoder,
    Greeting,
    HaProtocolError,
    MasterDecoder,
    Progress,
    Transfer,
    TransferDecoder,
    encode_epoch_transfer,
    encode_greeting,
    encode_progress,
    encode_transfer,
)
from firearrow.replication.progress import Follower, ReplicationProgress, SyncRules

offsets = st.integers(0, 2**62)
small = st.integers(0, 2**31 - 1)
bodies = st.binary(max_size=200)


def chunks_of(raw: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    return [raw[a:b] for a, b in pairwise(places)]


@given(st.lists(st.tuples(offsets, bodies), max_size=8), st.lists(st.integers(0, 2_000)))
def test_classic_transfers_come_out_as_they_went_in(
    sent: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    raw = b"".join(encode_transfer(offset, len(body)) + body for offset, body in sent)
    decoder = TransferDecoder()
    found = [frame for chunk in chunks_of(raw, cuts) for frame in decoder.feed(chunk)]
    assert found == [Transfer(offset, body) for offset, body in sent]


@given(
    st.lists(st.tuples(offsets, bodies, small, offsets, offsets), max_size=8),
    st.lists(st.integers(0, 2_000)),
)
def test_transfers_with_epochs_come_out_as_they_went_in(
    sent: list[tuple[int, bytes, int, int, int]], cuts: list[int]
) -> None:
    raw = b"".join(
        encode_epoch_transfer(offset, len(body), EpochEntry(epoch, start), confirm) + body
        for offset, body, epoch, start, confirm in sent
    )
    decoder = MasterDecoder()
    found = [frame for chunk in chunks_of(raw, cuts) for frame in decoder.feed(chunk)]
    assert found == [Transfer(*one) for one in sent]


@given(
    st.lists(
        st.builds(Progress, offsets) | st.builds(Greeting, small, st.booleans(), st.booleans()),
        max_size=8,
    ),
    st.lists(st.integers(0, 200)),
)
def test_what_a_slave_says_comes_out_as_it_went_in(
    said: list[Progress | Greeting], cuts: list[int]
) -> None:
    raw = b"".join(
        encode_progress(one.offset) if isinstance(one, Progress) else encode_greeting(one)
        for one in said
    )
    decoder = FollowerDecoder()
    assert [one for chunk in chunks_of(raw, cuts) for one in decoder.feed(chunk)] == said


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_rubbish_is_refused_or_waited_for_but_nothing_else_happens(rubbish: list[bytes]) -> None:
    for decoder in (TransferDecoder(), FollowerDecoder(), MasterDecoder()):
        try:
            for chunk in rubbish:
                list(decoder.feed(chunk))
        except HaProtocolError:
            pass


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[EpochEntry], int]:
    steps = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 50)), max_size=6))
    entries, epoch, start = [EpochEntry(1, 0)], 1, 0
    for by, size in steps:
        epoch, start = epoch + by, start + size
        entries.append(EpochEntry(epoch, start))
    return entries, start + draw(st.integers(0, 50))


@given(histories(), st.integers(0, 400))
def test_a_history_survives_its_file_and_a_cut(
    made: tuple[list[EpochEntry], int], cut: int
) -> None:
    entries, _ = made
    assert decode_epochs(encode_epochs(entries)) == entries
    history = EpochHistory()
    for entry in entries:
        history.append(entry)
    history.truncate(cut)
    assert list(history.entries) == [one for one in entries if one.start_offset < cut]


@given(histories(), histories())
def test_what_two_logs_share_both_have_and_bytes_before_it_are_of_one_epoch(
    ours: tuple[list[EpochEntry], int], theirs: tuple[list[EpochEntry], int]
) -> None:
    common = common_offset(*ours, *theirs)
    assert common is not None  # both begin with epoch 1 at 0
    assert common == common_offset(*theirs, *ours)
    assert common <= min(ours[1], theirs[1])
    shared = set(ours[0]) & set(theirs[0])
    last = max(shared, key=lambda one: one.epoch)
    assert common >= last.start_offset


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), max_size=30),
    st.lists(st.integers(1, 100), max_size=10),
)
def test_nobody_is_told_before_enough_replicas_hold_it(
    replicas: int, acks: list[tuple[int, int]], waits: list[int]
) -> None:
    progress = ReplicationProgress(lambda: 100)
    progress.rules = SyncRules(waits=replicas > 1, replicas=replicas)
    followers = [Follower(str(number)) for number in range(4)]
    for follower in followers:
        progress.joined(follower, 0)
    told: list[int] = []

    def note(offset: int) -> None:
        progress.when_replicated(offset, lambda held: told.append(offset) if held else None)

    def holders(offset: int) -> int:
        return 1 + sum(follower.acked >= offset for follower in followers)

    for offset in waits:
        note(offset)
    for number, offset in acks:
        progress.acked(followers[number], max(offset, followers[number].acked), 0)
        assert all(holders(one) >= replicas for one in told)
    assert sorted(told) == sorted(one for one in waits if holders(one) >= replicas)
