"""What request families share: replies, and checks that many of them begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.broker.config import BrokerRole
from firearrow.model.errors import (
    ServerFailed,
    ServiceNotAvailable,
    SubscriptionGroupNotFound,
    TopicNotFound,
)
from firearrow.model.topic import MessageQueue
from firearrow.wire import bodies, java_json
from firearrow.wire.codes import LanguageCode
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.broker.clients import Member
    from firearrow.broker.state import BrokerState
    from firearrow.model.group import SubscriptionGroupConfig
    from firearrow.model.topic import TopicConfig
    from firearrow.wire.header import Header


def json_reply(
    command: Command, body: object, header: Header | None = None, *, bare_int_keys: bool = False
) -> Command:
    """Success, with a document as body."""
    text = java_json.encode(body, bare_int_keys=bare_int_keys)
    return reply_to(command, header=header, body=text)


def refuse_on_slave(state: BrokerState) -> None:
    """Nothing is written on a slave, and nothing else of a send may happen there, either."""
    if state.config.broker_role is BrokerRole.SLAVE:
        raise ServiceNotAvailable(
            f"broker {state.config.broker_name} ({state.config.broker_id}) is a slave: it takes "
            "no messages; send to its master"
        )


def known_topic(state: BrokerState, name: str) -> TopicConfig:
    topic = state.topics.get(name)
    if topic is None:
        raise TopicNotFound(f"broker {state.config.broker_name} has no topic {name}")
    return topic


def known_group(state: BrokerState, name: str) -> SubscriptionGroupConfig:
    """A group that exists already; asking about one does not make it."""
    group = state.groups.get(name)
    if group is None:
        raise SubscriptionGroupNotFound(f"group {name} does not exist; create it")
    return group


def queue_ids(topic: TopicConfig) -> range:
    """Queues that are written to or still read: a topic that shrinks has more of one kind."""
    return range(max(topic.read_queue_nums, topic.write_queue_nums))


def message_queue(state: BrokerState, topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=state.config.broker_name, queue_id=queue_id)


def raw_message(state: BrokerState, physical_offset: int) -> bytes:
    """The record at a place of the log, as it lies there."""
    raw = state.store.lookup.raw_at(physical_offset)
    if raw is None:
        raise ServerFailed(f"there is no message at offset {physical_offset} of the log")
    return raw


def language_name(code: int) -> str:
    try:
        return LanguageCode(code).name
    except ValueError:
        return LanguageCode.OTHER.name


def connection_list(members: Iterable[Member]) -> tuple[bodies.Connection, ...]:
    """Members as listings show them."""
    return tuple(
        bodies.Connection(
            client_id=member.client_id,
            client_addr=member.address,
            language=language_name(member.language),
            version=member.version,
        )
        for member in members
    )
