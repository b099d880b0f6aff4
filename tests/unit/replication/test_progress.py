"""Who holds what, and who is told."""

from __future__ import annotations

from firearrow.replication.progress import Follower, ReplicationProgress, SyncRules


class World:
    def __init__(self, rules: SyncRules, end: int = 1_000) -> None:
        self.end = end
        self.told: list[tuple[int, bool]] = []
        self.changes: list[tuple[int, bool]] = []
        self.progress = ReplicationProgress(lambda: self.end)
        self.progress.rules = rules
        self.progress.on_sync_change = lambda number, is_in: self.changes.append((number, is_in))

    def follower(self, acked: int = -1, number: int | None = None) -> Follower:
        made = Follower("slave", number)
        self.progress.joined(made, 0)
        if acked >= 0:
            self.progress.acked(made, acked, 0)
        return made

    def wait(self, offset: int) -> None:
        self.progress.when_replicated(offset, lambda held: self.told.append((offset, held)))


FOUR = SyncRules(waits=True)  # RocketMQ 4
THREE_REPLICAS = SyncRules(waits=True, replicas=3)
WHOLE_SET = SyncRules(waits=True, whole_set=True)


def test_without_rules_everything_is_replicated_at_once() -> None:
    world = World(SyncRules())
    world.wait(1_000)
    assert world.told == [(1_000, True)]


def test_one_slave_is_enough_for_rocketmq_4_and_the_fastest_counts() -> None:
    world = World(FOUR)
    slow, fast = world.follower(10), world.follower(20)
    world.wait(500)
    world.progress.acked(slow, 499, 0)
    assert world.told == []
    world.progress.acked(fast, 500, 0)
    assert world.told == [(500, True)]


def test_the_rule_of_rocketmq_4_needs_a_slave_that_is_not_far_behind() -> None:
    world = World(SyncRules(waits=True, gap_max=100))
    assert world.progress.is_alone
    follower = world.follower(900)
    assert world.progress.is_alone
    world.progress.acked(follower, 901, 0)
    assert not world.progress.is_alone


def test_three_replicas_are_the_master_and_two_slaves() -> None:
    world = World(THREE_REPLICAS)
    first, second = world.follower(0), world.follower(0)
    world.wait(300)
    world.wait(200)
    world.progress.acked(first, 1_000, 0)
    assert world.told == []
    world.progress.acked(second, 250, 0)
    assert world.told == [(200, True)]
    world.progress.acked(second, 300, 0)
    assert world.told == [(200, True), (300, True)]


def test_automatic_replicas_do_with_those_that_are_there() -> None:
    world = World(SyncRules(waits=True, replicas=3, is_auto=True))
    world.wait(1_000)
    assert world.told == [(1_000, True)]
    world.follower(0)
    world.wait(1_000)
    assert world.told == [(1_000, True)]


def test_too_few_replicas_refuse_before_anything_is_stored() -> None:
    world = World(SyncRules(waits=True, replicas=2, replicas_min=2))
    assert "IN_SYNC_REPLICAS_NOT_ENOUGH" in world.progress.refusal()
    world.follower(1_000)
    assert world.progress.refusal() == ""


def test_every_member_of_the_set_must_hold_it_also_one_that_is_away() -> None:
    world = World(WHOLE_SET)
    world.progress.set_members(1, {1, 2, 3})
    first, second = world.follower(100, 2), world.follower(100, 3)
    world.wait(500)
    world.progress.acked(first, 500, 0)
    world.progress.left(second)
    assert world.told == []
    assert world.progress.confirm_offset == 100
    world.progress.set_members(1, {1, 2})
    assert world.told == [(500, True)]
    assert world.progress.confirm_offset == 500


def test_the_confirm_offset_never_goes_back() -> None:
    world = World(WHOLE_SET)
    world.progress.set_members(1, {1})
    assert world.progress.confirm_offset == 1_000
    world.follower(400, 2)
    world.progress.set_members(1, {1, 2})
    assert world.progress.confirm_offset == 1_000


def test_a_slave_that_has_caught_up_is_reported_once_it_is_not_in_the_set() -> None:
    world = World(WHOLE_SET)
    world.progress.set_members(1, {1})
    follower = world.follower(number=2)
    follower.end_at_transfer = 1_000
    world.progress.acked(follower, 999, 0)
    assert world.changes == []
    world.progress.acked(follower, 1_000, 0)
    world.progress.acked(follower, 1_000, 0)
    assert world.changes == [(2, True)]
    world.progress.set_members(1, {1, 2})
    world.progress.acked(follower, 1_000, 0)
    assert world.changes == [(2, True)]


def test_a_slave_that_was_proposed_is_waited_for_before_the_answer_comes() -> None:
    world = World(WHOLE_SET)
    world.progress.set_members(1, {1})
    follower = world.follower(1_000, 2)
    world.end = 1_500
    world.wait(1_500)
    assert world.told == []
    world.progress.acked(follower, 1_500, 0)
    assert world.told == [(1_500, True)]


def test_a_learner_is_never_proposed() -> None:
    world = World(WHOLE_SET)
    world.progress.set_members(1, {1})
    follower = world.follower(number=2)
    follower.is_learner = True
    world.progress.acked(follower, 1_000, 0)
    assert world.changes == []


def test_a_member_that_leaves_or_stays_late_falls_out() -> None:
    world = World(WHOLE_SET)
    world.progress.set_members(1, {1, 2, 3})
    gone, late = world.follower(1_000, 2), world.follower(1_000, 3)
    world.progress.left(gone)
    assert world.changes == [(2, False)]
    late.end_at_transfer = 2_000
    world.progress.set_members(1, {1, 3})
    world.changes.clear()
    world.progress.look_for_late(5_000)
    assert world.changes == []
    world.progress.look_for_late(5_001)
    assert world.changes == [(3, False)]


def test_a_silent_member_is_late_only_when_there_is_something_that_it_lacks() -> None:
    world = World(WHOLE_SET)
    world.progress.set_members(1, {1, 2})
    silent = world.follower(1_000, 2)
    for now_ms in range(0, 60_000, 1_000):
        world.progress.look_for_late(now_ms)
    assert world.changes == []
    silent.end_at_transfer = 1_001
    world.progress.look_for_late(64_000)
    assert world.changes == []
    world.progress.look_for_late(64_001)
    assert world.changes == [(2, False)]


def test_a_member_that_is_always_a_moment_behind_under_load_is_not_late() -> None:
    world = World(WHOLE_SET)
    world.progress.set_members(1, {1, 2})
    follower = world.follower(0, 2)
    for now_ms in range(0, 60_000, 100):
        follower.end_at_transfer = now_ms + 100  # more has been sent by the time it answers
        world.progress.acked(follower, now_ms, now_ms)
        world.progress.look_for_late(now_ms)
    assert world.changes == []


def test_a_slave_that_came_a_long_way_is_not_late_when_it_has_everything() -> None:
    world = World(WHOLE_SET)
    world.progress.set_members(1, {1})
    follower = world.follower(0, 2)
    follower.end_at_transfer = 1_000
    world.progress.acked(follower, 500, 100)
    world.progress.acked(follower, 1_000, 20_000)
    assert world.changes == [(2, True)]
    world.progress.set_members(1, {1, 2})
    follower.end_at_transfer = 2_000  # more comes before anybody looks
    world.progress.look_for_late(20_500)
    assert world.changes == [(2, True)]


def test_a_member_that_connects_again_before_its_old_connection_ends_stays() -> None:
    world = World(WHOLE_SET)
    world.progress.set_members(1, {1, 2})
    old, _ = world.follower(1_000, 2), world.follower(1_000, 2)
    world.progress.left(old)
    assert world.changes == []


def test_whoever_waits_when_the_master_steps_down_is_told_no() -> None:
    world = World(THREE_REPLICAS)
    world.wait(10)
    world.progress.give_up()
    assert world.told == [(10, False)]
    assert world.progress.waiting == 0
