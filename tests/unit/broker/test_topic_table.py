from __future__ import annotations

import pytest

from firearrow.broker.config import BrokerConfig
from firearrow.broker.topic_table import TopicTable, apply_attributes, check_topic, own_topics
from firearrow.model.errors import InvalidParameter
from firearrow.model.topic import TopicConfig
from firearrow.testing import ManualClock


def table() -> tuple[TopicTable, list[str]]:
    changes: list[str] = []
    return TopicTable(ManualClock(), changes.append), changes


def test_unchanged_topic_makes_no_new_version_and_tells_nobody() -> None:
    topics, changes = table()
    assert topics.put(TopicConfig(topic_name="orders"))
    version = topics.version
    assert not topics.put(TopicConfig(topic_name="orders"))
    assert topics.version == version
    assert len(changes) == 1


def test_touching_the_table_makes_a_new_version_of_it() -> None:
    topics, _ = table()
    version = topics.version
    topics.touch()
    assert topics.version.counter == version.counter + 1


def test_those_who_must_hear_of_a_change_are_told_which_topic_it_is_about() -> None:
    topics, changes = table()
    topics.put(TopicConfig(topic_name="orders"))
    topics.ensure("orders", 1)  # it is there
    topics.ensure("returns", 1)
    topics.delete("orders")
    topics.delete("orders")
    assert changes == ["orders", "returns", "orders"]


def test_example_topic_takes_a_new_queue_count_and_keeps_its_permission() -> None:
    topics, _ = table()
    topics.set_example(3)
    first = topics.get("TBW102")
    assert first is not None
    assert (first.write_queue_nums, first.perm) == (3, 7)
    topics.put(TopicConfig(topic_name="TBW102", perm=5))
    topics.set_example(4)
    changed = topics.get("TBW102")
    assert changed is not None
    assert (changed.read_queue_nums, changed.perm) == (4, 5)


def test_own_topics_follow_the_names_of_cluster_and_broker() -> None:
    config = BrokerConfig(broker_cluster_name="east", broker_name="b1")
    assert {"east", "b1", "east_REPLY_TOPIC"} <= own_topics(config)


@pytest.mark.parametrize("perm", [-1, 8, 15])
def test_permission_outside_three_bits_is_refused(perm: int) -> None:
    with pytest.raises(InvalidParameter, match=str(perm)):
        check_topic(TopicConfig(topic_name="orders", perm=perm))


def test_attribute_that_is_fixed_cannot_change_later() -> None:
    topic = TopicConfig(topic_name="orders")
    made = apply_attributes(topic, None, "+cleanup.policy=DELETE")
    assert apply_attributes(topic, made, "+cleanup.policy=DELETE").attributes == made.attributes
    with pytest.raises(InvalidParameter, match="cannot change"):
        apply_attributes(topic, made, "+cleanup.policy=COMPACTION")
