"""From what an application writes to what is told to brokers. Pure."""

from __future__ import annotations

from firearrow.client.errors import ConsumerMisuse, InvalidName
from firearrow.model.group import SQL92, TAG, SubscriptionData, parse_tags
from firearrow.model.topic import check_topic_name


def parse_subscription(
    topic: str, wire_topic: str, expression: str, sql: str | None, version: int
) -> tuple[SubscriptionData, frozenset[str] | None]:
    """What brokers filter by, and the tags that the client compares exactly; None means all.

    Brokers compare hashes of tags, so what they send may contain a stranger now and then.
    """
    problem = check_topic_name(topic)
    if problem is not None:
        raise InvalidName(problem)
    if sql is not None:
        if expression != "*":
            raise ConsumerMisuse("a subscription selects by tags or by SQL, not by both")
        if not sql.strip():
            raise ConsumerMisuse("the SQL expression is empty")
        data = SubscriptionData.of(wire_topic, sql, version=version, expression_type=SQL92)
        return data, None
    tags = parse_tags(expression)
    if tags is not None and not tags:
        raise ConsumerMisuse(f"{expression!r} names no tag")
    data = SubscriptionData.of(wire_topic, expression, version=version, expression_type=TAG)
    return data, None if tags is None else frozenset(tags)
