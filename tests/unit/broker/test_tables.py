"""Topics, groups and offsets: tables in memory, told apart from who saves or registers them."""

from __future__ import annotations

import pytest

from firearrow.broker.config import BrokerConfig
from firearrow.broker.group_table import GroupTable
from firearrow.broker.offset_table import COMMITS_PER_VERSION, OffsetTable
from firearrow.broker.topic_table import (
    TopicTable,
    apply_attributes,
    built_in_topics,
    check_topic,
)
from firearrow.model.errors import InvalidParameter
from firearrow.model.group import BUILT_IN_GROUPS, SubscriptionGroupConfig
from firearrow.model.topic import DataVersion, TopicConfig
from firearrow.testing import ManualClock


def topic(name: str = "orders", queues: int = 4, perm: int = 6) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


class Topics:
    """A table and what it told about its changes."""

    def __init__(self) -> None:
        self.changes: list[str | None] = []
        self.table = TopicTable(ManualClock(), self.changes.append)


# --- topics ---------------------------------------------------------------------------------


def test_only_a_real_change_of_a_topic_makes_a_new_version() -> None:
    topics = Topics()
    assert topics.table.put(topic())
    version = topics.table.version
    assert not topics.table.put(topic())
    assert topics.table.version == version
    assert topics.table.put(topic(queues=8))
    assert topics.table.version.counter == version.counter + 1
    assert topics.table.delete("orders")
    assert not topics.table.delete("orders")
    assert topics.changes == ["orders", "orders", "orders"]


@pytest.mark.parametrize(
    ("asked", "made"), [(1, 1), (4, 4), (8, 8), (100, 8)], ids=["one", "four", "all", "too many"]
)
def test_topic_made_on_send_has_no_more_queues_than_its_example(asked: int, made: int) -> None:
    topics = Topics()
    topics.table.put(topic("example", 8, perm=7))
    found = topics.table.create_on_send("new", "example", asked)
    assert found is not None
    assert (found.read_queue_nums, found.write_queue_nums, found.perm) == (made, made, 6)
    assert topics.table.get("new") is found


def test_example_without_the_inherit_bit_is_not_followed() -> None:
    topics = Topics()
    topics.table.put(topic("example", 8, perm=6))
    assert topics.table.create_on_send("new", "example", 4) is None
    assert topics.table.get("new") is None


def test_topic_that_exists_is_not_made_again() -> None:
    topics = Topics()
    topics.table.put(topic("%RETRY%g", 3))
    assert topics.table.ensure("%RETRY%g", 1).read_queue_nums == 3
    assert topics.changes == ["%RETRY%g"]


def test_built_in_topics_are_those_of_rocketmq() -> None:
    found = {one.topic_name: one for one in built_in_topics(BrokerConfig())}
    assert {name: (one.write_queue_nums, one.perm) for name, one in found.items()} == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
    }


def test_settings_decide_about_some_built_in_topics() -> None:
    config = BrokerConfig(
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
    )
    found = {one.topic_name: one.perm for one in built_in_topics(config)}
    assert "TBW102" not in found
    assert (found["DefaultCluster"], found["broker-a"]) == (1, 1)
    assert "RMQ_SYS_TRACE_TOPIC" in found


def test_built_in_topic_that_was_changed_stays_changed() -> None:
    topics = Topics()
    topics.table.load({"TBW102": topic("TBW102", 2)}, DataVersion(counter=7))
    topics.table.create_built_in(BrokerConfig())
    found = topics.table.get("TBW102")
    assert found is not None
    assert found.write_queue_nums == 2
    assert topics.table.version.counter == 8


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (topic("bad/name"), "bad/name"),
        (topic(queues=0), "0 read queues"),
        (topic(queues=-1), "-1 read queues"),
        (topic(queues=1_000_000), "1000000 read queues"),
    ],
)
def test_topic_that_cannot_be_is_refused_with_the_reason(one: TopicConfig, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        check_topic(one)


def test_attributes_are_added_changed_and_taken_away() -> None:
    for kind in ("MIXED", "PRIORITY"):
        assert apply_attributes(topic(), None, f"+message.type={kind}").attributes == {
            "message.type": kind
        }
    first = apply_attributes(topic(), None, "+message.type=FIFO,+queue.type=SimpleCQ")
    assert first.attributes == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    second = apply_attributes(topic(), first, "+message.type=DELAY")
    assert second.attributes == {"message.type": "DELAY", "queue.type": "SimpleCQ"}
    third = apply_attributes(topic(), second, "-message.type")
    assert third.attributes == {"queue.type": "SimpleCQ"}


@pytest.mark.parametrize(
    "text", ["message.type=FIFO", "+nonsense=1", "+message.type=LOUD", "+queue.type=BatchCQ", "+"]
)
def test_attribute_that_makes_no_sense_is_refused(text: str) -> None:
    known = apply_attributes(topic(), None, "+queue.type=SimpleCQ")
    with pytest.raises(InvalidParameter):
        apply_attributes(topic(), known, text)


# --- groups ---------------------------------------------------------------------------------


class Groups:
    def __init__(self, *, auto_create: bool = True) -> None:
        self.changes = 0
        self.table = GroupTable(ManualClock(), self._changed, auto_create=auto_create)

    def _changed(self) -> None:
        self.changes += 1


def test_group_comes_into_being_on_first_use_if_that_is_allowed() -> None:
    groups = Groups()
    assert groups.table.get("new") is None
    assert groups.table.find("new") == SubscriptionGroupConfig(group_name="new")
    assert groups.table.find("new") is groups.table.get("new")
    assert (groups.changes, groups.table.version.counter) == (1, 1)
    assert Groups(auto_create=False).table.find("new") is None


@pytest.mark.parametrize("name", ["", "not a name", "x" * 121])
def test_group_with_an_impossible_name_never_comes_into_being(name: str) -> None:
    assert Groups().table.find(name) is None


def test_built_in_groups_exist_also_when_others_must_be_created() -> None:
    groups = Groups(auto_create=False)
    groups.table.create_built_in()
    assert set(groups.table.all()) == BUILT_IN_GROUPS
    assert groups.changes == 0


def test_same_settings_again_change_nothing() -> None:
    groups = Groups()
    groups.table.put(SubscriptionGroupConfig(group_name="g"))
    groups.table.put(SubscriptionGroupConfig(group_name="g"))
    assert groups.changes == 1
    groups.table.put(SubscriptionGroupConfig(group_name="g", retry_max_times=1))
    assert groups.changes == 2


def test_forbidden_topics_are_bits_that_leave_nothing_behind() -> None:
    groups = Groups()
    groups.table.forbid_reading("g", "t", forbidden=True)
    assert groups.table.forbidden == {"g": {"t": 4}}
    assert not groups.table.may_read("g", "t")
    assert groups.table.may_read("g", "other")
    groups.table.forbid_reading("g", "t", forbidden=False)
    assert groups.table.forbidden == {}
    groups.table.forbid_reading("g", "t", forbidden=True)
    assert groups.table.delete("g")
    assert groups.table.may_read("g", "t")


# --- offsets --------------------------------------------------------------------------------


def test_offset_is_what_was_committed_last_also_when_it_is_smaller() -> None:
    offsets = OffsetTable(ManualClock())
    assert offsets.committed("t", "g", 0) == -1
    offsets.commit("t", "g", 0, 10)
    offsets.commit("t", "g", 0, 3)
    assert offsets.committed("t", "g", 0) == 3
    assert offsets.changed


def test_version_of_offsets_moves_every_so_many_commits() -> None:
    offsets = OffsetTable(ManualClock())
    for number in range(COMMITS_PER_VERSION - 1):
        offsets.commit("t", "g", 0, number)
    assert offsets.version.counter == 0
    offsets.commit("t", "g", 0, 0)
    assert offsets.version.counter == 1


def test_key_is_split_at_its_first_at_sign() -> None:
    offsets = OffsetTable(ManualClock())
    offsets.load({"t@g@broadcast": {0: 1}, "t@g": {0: 2, 7: 9}, "nothing": {0: 3}}, None)
    assert offsets.committed("t", "g@broadcast", 0) == 1
    assert offsets.offsets("t", "g") == {0: 2, 7: 9}
    assert offsets.snapshot() == {"t@g@broadcast": {0: 1}, "t@g": {0: 2, 7: 9}}
    assert offsets.groups_of("t") == ["g"]
    assert offsets.topics_of("g") == ["t"]


def test_reset_counts_at_once_holds_off_commits_and_is_taken_once() -> None:
    offsets = OffsetTable(ManualClock())
    offsets.commit("t", "g", 0, 50)
    offsets.reset("t", "g", 0, 7)
    assert offsets.committed("t", "g", 0) == 7
    assert not offsets.commit("t", "g", 0, 51)
    assert offsets.commit("t", "g", 1, 51)
    assert offsets.snapshot() == {"t@g": {0: 7, 1: 51}}
    assert offsets.take_reset("t", "g", 0) == 7
    assert offsets.take_reset("t", "g", 0) is None
    assert offsets.commit("t", "g", 0, 8)


def test_clone_copies_and_does_not_share() -> None:
    offsets = OffsetTable(ManualClock())
    offsets.commit("t", "a", 0, 1)
    offsets.clone("a", "b", ["t", "unknown"])
    offsets.commit("t", "a", 0, 2)
    assert offsets.committed("t", "b", 0) == 1
    assert offsets.committed("unknown", "b", 0) == -1


def test_topic_or_group_that_is_removed_leaves_nothing_behind() -> None:
    offsets = OffsetTable(ManualClock())
    for name in ("t", "u"):
        for group in ("g", "h"):
            offsets.commit(name, group, 0, 1)
            offsets.note_pull(name, group, 0, 2)
            offsets.reset(name, group, 0, 3)
    offsets.remove_topic("t")
    offsets.remove_group("h")
    assert offsets.snapshot() == {"u@g": {0: 3}}
    assert offsets.pulled("t", "g", 0) == offsets.pulled("u", "h", 0) == -1
    assert offsets.take_reset("t", "g", 0) is None
    assert offsets.pulled("u", "g", 0) == 2
