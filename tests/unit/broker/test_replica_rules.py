"""What a replica does about what the controller says."""

from __future__ import annotations

import pytest

from firearrow.broker.controller_link import ReplicaInfo
from firearrow.broker.replica_rules import (
    AskElection,
    Decision,
    Follow,
    InSync,
    Lead,
    Stay,
    decide_role,
    must_step_down,
)

ME, OTHER = 1, 2


def told(master: int | None, epoch: int) -> ReplicaInfo:
    address = "" if master is None else f"host:{master}"
    return ReplicaInfo(master, address, epoch, frozenset({master or 0}), 1)


@pytest.mark.parametrize(
    ("news", "reigns", "newest_epoch", "follows", "decision"),
    [
        (told(None, 0), 0, 0, None, AskElection()),
        (told(ME, 1), 0, 0, None, Lead(1)),
        (told(ME, 1), 1, 1, None, Stay()),
        (told(ME, 1), 0, 1, None, AskElection()),  # it reigned in epoch 1, and was away
        (told(ME, 2), 1, 1, None, Lead(2)),
        (told(OTHER, 2), 1, 1, None, Follow("host:2", 2)),
        (told(OTHER, 2), 0, 1, Follow("host:2", 2), Stay()),
        (told(OTHER, 3), 0, 1, Follow("host:2", 2), Follow("host:2", 3)),
        (told(OTHER, 1), 2, 2, None, Stay()),  # old news
        (told(None, 1), 2, 2, None, Stay()),
        (told(None, 2), 2, 2, None, AskElection()),
    ],
)
def test_roles_follow_from_what_the_controller_says(
    news: ReplicaInfo, reigns: int, newest_epoch: int, follows: Follow | None, decision: Decision
) -> None:
    decided = decide_role(
        news, own_id=ME, reigns=reigns, newest_epoch=newest_epoch, follows=follows
    )
    assert decided == decision


def test_a_master_steps_down_when_no_controller_answers_and_a_member_is_missing() -> None:
    def decide(members: set[int], present: set[int], silent_ms: int) -> bool:
        return must_step_down(
            reigns=1,
            members=frozenset(members),
            present=frozenset(present),
            silent_ms=silent_ms,
            limit_ms=5_000,
        )

    assert decide({2}, set(), 5_000)
    assert decide({2, 3}, {3}, 5_000)
    assert not decide({2}, set(), 4_999), "a controller may still answer"
    assert not decide({2}, {2}, 60_000), "the only other one that could be master follows us"
    assert not decide(set(), set(), 60_000), "nobody else can be elected"


def test_whoever_was_proposed_counts_until_the_controller_has_spoken() -> None:
    known = InSync(ME)
    known.begin(frozenset({ME}), 1)
    known.propose(frozenset({ME, OTHER}))
    assert known.counting == {ME, OTHER}
    known.unanswered()
    assert known.counting == {ME, OTHER}
    assert not known.told(frozenset({ME}), 1), "the proposal may still be under way"
    assert known.counting == {ME, OTHER}
    assert known.told(frozenset({ME}), 2)
    assert known.counting == {ME}


def test_who_is_to_leave_counts_until_the_controller_has_agreed() -> None:
    known = InSync(ME)
    known.begin(frozenset({ME, OTHER}), 1)
    known.propose(frozenset({ME}))
    assert known.counting == {ME, OTHER}
    known.refused()
    assert known.counting == {ME, OTHER}
    known.propose(frozenset({ME}))
    assert known.told(frozenset({ME}), 2)
    assert known.counting == {ME}
