import pytest

from firearrow.model.topic import (
    NO_SEND_TOPICS,
    SYSTEM_TOPICS,
    DataVersion,
    MessageQueue,
    Perm,
    check_topic_name,
    dlq_topic,
    format_order_conf,
    group_of_retry_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    is_valid_perm,
    parse_order_conf,
    perm_text,
    pop_retry_topic,
    reply_topic,
    retry_topic,
)


@pytest.mark.parametrize(
    ("perm", "text"), [(0, "---"), (1, "--X"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX")]
)
def test_permission_is_shown_as_mqadmin_shows_it(perm: int, text: str) -> None:
    assert perm_text(perm) == text
    assert perm_text(perm | Perm.PRIORITY) == text


@pytest.mark.parametrize(("perm", "valid"), [(-1, False), (0, True), (7, True), (8, False)])
def test_permission_may_not_have_the_priority_bit(perm: int, valid: bool) -> None:
    assert is_valid_perm(perm) is valid


@pytest.mark.parametrize("name", ["TopicTest", "a", "%RETRY%CG", "ns%topic", "a|b", "x_-9"])
def test_ordinary_topic_names_are_allowed(name: str) -> None:
    assert check_topic_name(name) is None


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_blank_topic_name_is_refused(name: str) -> None:
    assert check_topic_name(name) == "the topic is blank"


@pytest.mark.parametrize("name", ["a b", "a.b", "主题", "a/b", "../a", "topic\n", "a+b", "a\x00"])
def test_topic_name_with_another_character_is_refused(name: str) -> None:
    reason = check_topic_name(name)
    assert reason is not None
    assert repr(name) in reason


@pytest.mark.parametrize(("prefix", "limit"), [("", 127), ("%RETRY%", 255), ("%DLQ%", 255)])
def test_topic_name_has_a_limit_which_retry_topics_exceed(prefix: str, limit: int) -> None:
    longest = prefix.ljust(limit, "x")
    assert check_topic_name(longest) is None
    assert check_topic_name(longest + "x") == (
        f"the topic has {limit + 1} characters; the limit is {limit}"
    )


def test_clients_may_send_to_some_system_topics_only() -> None:
    assert NO_SEND_TOPICS < SYSTEM_TOPICS
    assert "TBW102" in SYSTEM_TOPICS - NO_SEND_TOPICS
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in NO_SEND_TOPICS


@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("SCHEDULE_TOPIC_XXXX", True),
        ("BenchmarkTest", True),
        ("rmq_sys_wheel_timer", True),
        ("rmq_sys_REVIVE_LOG_DefaultCluster", True),
        ("TopicTest", False),
        ("%RETRY%CG", False),
    ],
)
def test_system_topics_are_known_by_name_or_prefix(name: str, system: bool) -> None:
    assert is_system_topic(name) is system


def test_retry_and_dead_letter_topics_belong_to_their_group() -> None:
    assert (retry_topic("CG"), dlq_topic("CG")) == ("%RETRY%CG", "%DLQ%CG")
    assert is_retry_topic("%RETRY%CG")
    assert not is_retry_topic("%DLQ%CG")
    assert is_dlq_topic("%DLQ%CG")
    assert not is_dlq_topic("CG%DLQ%")
    assert group_of_retry_topic("%RETRY%CG") == "CG" == group_of_retry_topic("%DLQ%CG")
    assert group_of_retry_topic("CG") is None


def test_pop_retry_topic_has_two_spellings() -> None:
    assert pop_retry_topic("orders", "CG") == "%RETRY%CG_orders"
    assert pop_retry_topic("orders", "CG", v2=True) == "%RETRY%CG+orders"


def test_reply_topic_is_named_after_the_cluster() -> None:
    assert reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"


def test_versions_are_equal_only_in_all_three_numbers() -> None:
    version = DataVersion(state_version=1, timestamp=2, counter=3)
    assert version == DataVersion(state_version=1, timestamp=2, counter=3)
    assert version != DataVersion(state_version=1, timestamp=2, counter=4)
    assert version != DataVersion(state_version=1, timestamp=3, counter=3)
    assert version != DataVersion(state_version=2, timestamp=2, counter=3)


def test_versions_are_ordered_by_term_then_changes_then_time() -> None:
    newest_first = [
        DataVersion(state_version=1, counter=0, timestamp=0),
        DataVersion(state_version=0, counter=2, timestamp=5),
        DataVersion(state_version=0, counter=2, timestamp=1),
        DataVersion(state_version=0, counter=1, timestamp=9),
    ]
    oldest_first = sorted(newest_first, key=lambda version: version.order_key)
    assert oldest_first == newest_first[::-1]


def test_next_version_counts_one_change_and_keeps_the_term() -> None:
    version = DataVersion(state_version=4, timestamp=10, counter=2)
    assert version.next_version(50) == DataVersion(state_version=4, timestamp=50, counter=3)
    assert version.next_version(50, state_version=5).state_version == 5


def test_queues_sort_by_topic_then_broker_then_number_and_can_be_keys() -> None:
    queues = [
        MessageQueue(topic="b", broker_name="a", queue_id=0),
        MessageQueue(topic="a", broker_name="c", queue_id=2),
        MessageQueue(topic="a", broker_name="b", queue_id=10),
    ]
    assert sorted(queues) == queues[::-1]
    assert len({*queues, MessageQueue(topic="a", broker_name="b", queue_id=10)}) == 3


def test_order_configuration_survives_a_round_trip_and_skips_nonsense() -> None:
    assert parse_order_conf("broker-a:4;broker-b:2") == {"broker-a": 4, "broker-b": 2}
    assert format_order_conf({"broker-a": 4, "broker-b": 2}) == "broker-a:4;broker-b:2"
    assert parse_order_conf("broker-a:;:4;x;broker-b:-1;broker-c:1;") == {"broker-c": 1}
