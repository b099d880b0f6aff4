"""Topics, as administrators see them: create, change, delete, list, and how full they are."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from firearrow.broker.processors.common import (
    json_reply,
    known_topic,
    message_queue,
    queue_ids,
)
from firearrow.broker.topic_table import apply_attributes, check_topic, own_topics
from firearrow.model.errors import InvalidParameter, TopicNotFound
from firearrow.model.topic import (
    SYSTEM_TOPICS,
    DataVersion,
    TopicConfig,
    check_topic_name,
    is_system_topic,
    pop_retry_topic,
)
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.command import Command, reply_to
from firearrow.wire.java_json import ObjectMap

if TYPE_CHECKING:
    from firearrow.broker.state import BrokerState
    from firearrow.model.topic import MessageQueue
    from firearrow.net.connection import Connection

log = logging.getLogger(__name__)


class TopicAdmin:
    def __init__(self, state: BrokerState) -> None:
        self._state = state

    # --- changing ---------------------------------------------------------------------------

    async def handle_create(self, command: Command, connection: Connection) -> Command:
        asked = headers.CreateTopicRequest.from_ext(command.ext)
        topic = TopicConfig(
            topic_name=asked.topic,
            read_queue_nums=asked.read_queue_nums,
            write_queue_nums=asked.write_queue_nums,
            perm=asked.perm,
            topic_filter_type=asked.topic_filter_type,
            topic_sys_flag=asked.topic_sys_flag or 0,
            order=asked.order,
        )
        self._check(topic)
        known = self._state.topics.get(asked.topic)
        await self._put([apply_attributes(topic, known, asked.attributes or "")], connection)
        return reply_to(command)

    async def handle_create_list(self, command: Command, connection: Connection) -> Command:
        """All of them, or none if one is wrong."""
        said = java_json.decode(command.body, bodies.TopicConfigList)
        topics = []
        for topic in said.topic_config_list:
            self._check(topic)
            text = ",".join(
                f"+{key.lstrip('+')}={value}" for key, value in topic.attributes.items()
            )
            topics.append(apply_attributes(topic, self._state.topics.get(topic.topic_name), text))
        if not topics:
            raise InvalidParameter("the list of topics is empty")
        await self._put(topics, connection)
        return reply_to(command)

    def _check(self, topic: TopicConfig) -> None:
        self._refuse_system(topic.topic_name)
        check_topic(topic)

    def _refuse_system(self, name: str) -> None:
        if is_system_topic(name) or name in own_topics(self._state.config):
            raise InvalidParameter(f"{name} is a system topic: RocketMQ keeps it for itself")

    async def _put(self, topics: list[TopicConfig], connection: Connection) -> None:
        """Have them, and have name servers know: the next question is for their routes."""
        changed = False
        for topic in topics:
            known = self._state.topics.get(topic.topic_name)
            if self._state.topics.put(topic):
                changed = True
                log.info("%s set %s, which was %s", connection.peer, topic, known)
                self._warn_of_backlog(known, topic)
        if changed:
            await self._state.registration.registered()

    def _warn_of_backlog(self, known: TopicConfig | None, topic: TopicConfig) -> None:
        """Messages in queues beyond the new count stay; nobody reads them until it grows again."""
        if known is None:
            return
        lookup, name = self._state.store.lookup, topic.topic_name
        hidden = [
            queue_id
            for queue_id in range(topic.read_queue_nums, known.read_queue_nums)
            if lookup.max_offset(name, queue_id) > lookup.min_offset(name, queue_id)
        ]
        if hidden:
            log.warning(
                "topic %s has %d read queues now; messages in queues %s are kept, but cannot be "
                "read until it has as many as before",
                name,
                topic.read_queue_nums,
                hidden,
            )

    async def handle_delete(self, command: Command, connection: Connection) -> Command:
        """Forget a topic with its queues, offsets and counters; also one that is not there."""
        asked = headers.DeleteTopicRequest.from_ext(command.ext)
        if (reason := check_topic_name(asked.topic)) is not None:
            raise InvalidParameter(reason)
        self._refuse_system(asked.topic)
        state = self._state
        groups = {
            *state.offsets.groups_of(asked.topic),
            *state.clients.groups_of_topic(asked.topic),
        }
        retries = {
            pop_retry_topic(asked.topic, group, v2=v2) for group in groups for v2 in (False, True)
        }
        deleted = False
        for name in (asked.topic, *sorted(retries & state.topics.all().keys())):
            deleted |= state.topics.delete(name)
            state.offsets.remove_topic(name)
            state.store.delete_topic(name)
            state.statistics.forget(name)
        if deleted:
            log.info("%s deleted topic %s", connection.peer, asked.topic)
            # A registration on its way still has the topic; the administrator asks name servers
            # to forget it next, and must be the last.
            await state.registration.registered()
        return reply_to(command)

    def handle_clean_unused(self, command: Command, _: Connection) -> Command:
        """Remove queues of topics that do not exist any more."""
        state = self._state
        for name in {topic for topic, _ in state.store.queues()} - state.topics.all().keys():
            if not is_system_topic(name):
                log.info("removing the queues of topic %s, which does not exist", name)
                state.store.delete_topic(name)
        return reply_to(command)

    # --- looking ----------------------------------------------------------------------------

    def handle_config(self, command: Command, _: Connection) -> Command:
        asked = headers.GetTopicConfigRequest.from_ext(command.ext)
        topic = self._state.topics.get(asked.topic)
        if topic is None:
            raise TopicNotFound(f"topic {asked.topic} does not exist here")
        return json_reply(command, topic)

    def handle_all(self, command: Command, _: Connection) -> Command:
        """The whole table, also to those who ask for pages: a count of all ends their loop."""
        asked = headers.GetAllTopicConfigRequest.from_ext(command.ext)
        topics = self._state.topics
        total = None if asked.topic_seq is None else len(topics.all())
        return json_reply(
            command,
            bodies.TopicConfigSerializeWrapper(
                data_version=topics.version,
                topic_config_table=dict(topics.all()),
                mapping_data_version=DataVersion(),
                topic_queue_mapping_detail_map={},
                topic_queue_mapping_info_map={},
            ),
            headers.GetAllTopicConfigReply(total_topic_num=total),
        )

    def handle_system_list(self, command: Command, _: Connection) -> Command:
        names = sorted(SYSTEM_TOPICS | own_topics(self._state.config))
        return json_reply(command, bodies.TopicList(topic_list=tuple(names)))

    def handle_stats(self, command: Command, _: Connection) -> Command:
        asked = headers.GetTopicStatsInfoRequest.from_ext(command.ext)
        topic = known_topic(self._state, asked.topic)
        lookup = self._state.store.lookup
        table: ObjectMap[MessageQueue, bodies.TopicOffset] = ObjectMap()
        for queue_id in queue_ids(topic):
            least, most = (
                lookup.min_offset(asked.topic, queue_id),
                lookup.max_offset(asked.topic, queue_id),
            )
            last_ms = lookup.store_time(asked.topic, queue_id, most - 1) if most > least else 0
            table[message_queue(self._state, asked.topic, queue_id)] = bodies.TopicOffset(
                min_offset=least, max_offset=most, last_update_timestamp=max(last_ms, 0)
            )
        tps = self._state.statistics.tps("TOPIC_PUT_NUMS", asked.topic)
        return json_reply(command, bodies.TopicStatsTable(offset_table=table, topic_put_tps=tps))

    def handle_groups(self, command: Command, _: Connection) -> Command:
        """Who consumes a topic: groups that are here, and groups that were."""
        asked = headers.QueryTopicConsumeByWhoRequest.from_ext(command.ext)
        state = self._state
        groups = {
            *state.clients.groups_of_topic(asked.topic),
            *state.offsets.groups_of(asked.topic),
        }
        return json_reply(command, bodies.GroupList(group_list=tuple(sorted(groups))))

    def handle_topics_of_group(self, command: Command, _: Connection) -> Command:
        asked = headers.QueryTopicsByConsumerRequest.from_ext(command.ext)
        state = self._state
        topics = tuple(sorted(state.offsets.topics_of(asked.group)))
        return json_reply(
            command, bodies.TopicList(topic_list=topics, broker_addr=state.registration.address)
        )
