import pytest

from firearrow.model.group import (
    BUILT_IN_GROUPS,
    ConsumeFromWhere,
    ConsumeType,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
    check_group_name,
    is_system_group,
    is_tag_type,
    parse_tags,
)


def test_group_name_follows_the_rules_of_topics_with_its_own_limit() -> None:
    assert check_group_name("ns%CG_1-x|y") is None
    assert check_group_name("x" * 120) is None
    assert check_group_name("x" * 121) == "the group has 121 characters; the limit is 120"
    assert check_group_name(" ") == "the group is blank"
    assert "'a b'" in (check_group_name("a b") or "")


@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("TOOLS_CONSUMER", True),
        ("CLIENT_INNER_PRODUCER", True),
        ("CID_RMQ_SYS_ANYTHING", True),
        ("CG", False),
        ("tools_consumer", False),
    ],
)
def test_system_groups_are_known_by_name_or_prefix(name: str, system: bool) -> None:
    assert is_system_group(name) is system
    assert all(is_system_group(group) for group in BUILT_IN_GROUPS)


def test_ordinals_are_those_that_cpp_clients_send() -> None:
    assert [member.name for member in ConsumeType] == [
        "CONSUME_ACTIVELY",
        "CONSUME_PASSIVELY",
        "CONSUME_POP",
    ]
    assert [member.name for member in MessageModel] == ["BROADCASTING", "CLUSTERING"]
    assert [member.name for member in ConsumeFromWhere] == [
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ]
    assert [member.name for member in GroupRetryPolicyType] == ["EXPONENTIAL", "CUSTOMIZED"]


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        (None, None),
        ("", None),
        ("*", None),
        ("TagA", ("TagA",)),
        (" TagA||TagB || TagA", ("TagA", "TagB")),
        ("TagA || || TagB||", ("TagA", "TagB")),
        ("||", ()),
        ("a b || c|d", ("a b", "c|d")),
    ],
)
def test_tag_expression_is_split_at_double_bars(
    expression: str | None, tags: tuple[str, ...] | None
) -> None:
    assert parse_tags(expression) == tags


def test_tag_codes_come_from_the_expression_and_not_from_the_peer() -> None:
    subscription = SubscriptionData(
        topic="T", sub_string="TagA || TagB", tags_set=("other",), code_set=(1, 2, 3)
    )
    assert subscription.tags == ("TagA", "TagB")
    assert subscription.tag_codes == frozenset({2598919, 2598920})


def test_subscription_to_everything_has_no_codes_to_compare() -> None:
    assert SubscriptionData(topic="T", sub_string="*", code_set=(1,)).tag_codes is None


def test_subscription_without_expression_falls_back_to_its_tags() -> None:
    assert SubscriptionData(topic="T", tags_set=("TagA",)).tag_codes == frozenset({2598919})


def test_subscription_to_no_tag_at_all_matches_nothing() -> None:
    assert SubscriptionData(topic="T", sub_string="||").tag_codes == frozenset()


def test_sql_subscription_has_no_tags() -> None:
    subscription = SubscriptionData.of("T", "a > 1 || b", version=5, expression_type="SQL92")
    assert subscription.tags is None
    assert (subscription.tags_set, subscription.code_set) == ((), ())
    assert subscription.sub_string == "a > 1 || b"


def test_subscription_that_we_make_carries_what_java_brokers_read() -> None:
    assert SubscriptionData.of("T", "TagA", version=5) == SubscriptionData(
        topic="T", sub_string="TagA", sub_version=5, tags_set=("TagA",), code_set=(2598919,)
    )
    assert SubscriptionData.of("T", "", version=5).sub_string == "*"


@pytest.mark.parametrize(
    ("expression_type", "by_tag"), [(None, True), ("", True), ("TAG", True), ("SQL92", False)]
)
def test_missing_expression_type_means_tags(expression_type: str | None, by_tag: bool) -> None:
    assert is_tag_type(expression_type) is by_tag


def test_new_group_has_rocketmqs_defaults() -> None:
    config = SubscriptionGroupConfig(group_name="CG")
    assert (config.retry_queue_nums, config.retry_max_times) == (1, 16)
    assert (config.broker_id, config.which_broker_when_consume_slowly) == (0, 1)
    assert config.consume_enable
    assert config.consume_broadcast_enable
    assert not config.consume_message_orderly
    assert config.group_retry_policy == GroupRetryPolicy(type=GroupRetryPolicyType.CUSTOMIZED)
    assert config.subscription_data_set is None
