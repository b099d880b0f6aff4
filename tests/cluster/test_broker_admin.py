"""What administrators ask of a broker, over the wire: topics, and finding messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.admin_requests import body_of, create, put, route, told
from tests.broker_requests import (
    GROUP,
    TOPIC,
    commit,
    pull,
    records,
    send,
    texts,
)
from tests.support import running_broker, until

from firearrow.hot import parse_offset_message_id
from firearrow.model.errors import ResponseCode
from firearrow.model.topic import TopicConfig
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request

if TYPE_CHECKING:
    from pathlib import Path


FOREVER_MS = 1 << 60


# --- topics ---------------------------------------------------------------------------------


async def test_created_topic_has_a_route_before_the_answer_comes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        assert (await served.ask(create(queues=3))).code == 0
        found = java_json.decode((await route(served)).body, bodies.TopicRouteData)
        (queues,) = found.queue_datas
        assert (queues.read_queue_nums, queues.write_queue_nums, queues.perm) == (3, 3, 6)


async def test_many_topics_created_at_once_are_all_routed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        topics = tuple(
            TopicConfig(topic_name=f"topic-{n}", read_queue_nums=n) for n in range(1, 30)
        )
        body = java_json.encode(bodies.TopicConfigList(topic_config_list=topics))
        asked = request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        assert (await served.ask(asked)).code == 0
        for topic in topics:
            assert (await route(served, topic.topic_name)).code == 0


async def test_wiped_write_permission_stays_wiped_when_another_topic_changes(
    tmp_path: Path,
) -> None:
    async def perm(topic: str) -> int:
        found = java_json.decode((await route(served, topic)).body, bodies.TopicRouteData)
        return found.queue_datas[0].perm

    async with running_broker(tmp_path) as served:
        await served.ask(create("first"))
        wipe = headers.WipeWritePermOfBrokerRequest(broker_name="broker-a")
        await served.ask_nameserver(request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe))
        assert await perm("first") == 4
        await served.ask(create("second"))
        assert (await perm("first"), await perm("second")) == (4, 6)
        deleting = headers.DeleteTopicRequest(topic="second")
        await told(served, RequestCode.DELETE_TOPIC_IN_BROKER, deleting)
        assert await perm("first") == 4


async def test_name_server_that_forgot_the_broker_is_told_all_at_the_next_change(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create("first"))
        goodbye = headers.UnregisterBrokerRequest(
            broker_name="broker-a",
            broker_addr=served.broker.address,
            cluster_name="DefaultCluster",
            broker_id=0,
        )
        await served.ask_nameserver(request(RequestCode.UNREGISTER_BROKER, goodbye))
        assert (await route(served, "first")).code == ResponseCode.TOPIC_NOT_EXIST
        await served.ask(create("second"))
        await served.broker.state.registration.registered()
        assert (await route(served, "first")).code == 0
        assert (await route(served, "second")).code == 0


async def test_one_wrong_topic_of_a_list_creates_none_of_them(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        topics = (TopicConfig(topic_name="good"), TopicConfig(topic_name="bad topic"))
        body = java_json.encode(bodies.TopicConfigList(topic_config_list=topics))
        reply = await served.ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body))
        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert served.broker.state.topics.get("good") is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": "bad*topic"}, "character"),
        ({"topic": " "}, "blank"),
        ({"topic": "t" * 128}, "127"),
        ({"topic": "SELF_TEST_TOPIC"}, "system topic"),
        ({"topic": "rmq_sys_mine"}, "system topic"),
        ({"topic": "DefaultCluster"}, "system topic"),
        ({"topic": "broker-a"}, "system topic"),
        ({"perm": 9}, "permission 9"),
        ({"read_queue_nums": 0}, "0 read queues"),
        ({"write_queue_nums": 100_000}, "100000 write queues"),
        ({"attributes": "+message.type=WHATEVER"}, "message.type"),
        ({"attributes": "+colour=red"}, "colour"),
        ({"attributes": "+reserve.time=soon"}, "a number"),
        ({"attributes": "message.type=FIFO"}, "+key=value"),
    ],
)
async def test_impossible_topic_is_refused_with_code_29(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    async with running_broker(tmp_path) as served:
        before = dict(served.broker.state.topics.all())
        reply = await served.ask(create(**fields))
        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert words in (reply.remark or "")
        assert served.broker.state.topics.all() == before


async def test_attributes_are_added_altered_and_taken_away(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        config = headers.GetTopicConfigRequest(topic=TOPIC)
        for text, wanted in (
            ("+message.type=FIFO,+reserve.time=24", {"message.type": "FIFO", "reserve.time": "24"}),
            ("+message.type=NORMAL", {"message.type": "NORMAL", "reserve.time": "24"}),
            ("-reserve.time", {"message.type": "NORMAL"}),
            ("", {"message.type": "NORMAL"}),
        ):
            assert (await served.ask(create(attributes=text))).code == 0
            found = await body_of(served, RequestCode.GET_TOPIC_CONFIG, config)
            assert found.attributes == wanted


async def test_topic_that_shrinks_and_grows_again_has_lost_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create(queues=4))
        for queue_id in range(4):
            await put(served, b"in %d" % queue_id, queue_id=queue_id)
        # First nothing new goes to the last queues; consumers may still empty them.
        assert (await served.ask(create(write_queue_nums=2, read_queue_nums=4))).code == 0
        assert texts(await served.ask(pull(queue_id=3))) == [b"in 3"]
        # Then they are closed.
        assert (await served.ask(create(queues=2))).code == 0
        assert (await served.ask(pull(queue_id=3))).code == ResponseCode.INVALID_PARAMETER
        assert (await served.ask(send(queue_id=3))).code == ResponseCode.INVALID_PARAMETER
        assert texts(await served.ask(pull(queue_id=1))) == [b"in 1"]
        # And as they were.
        assert (await served.ask(create(queues=4))).code == 0
        assert texts(await served.ask(pull(queue_id=3))) == [b"in 3"]
        (again,) = await put(served, b"more", queue_id=3)
        assert again.queue_offset == 1


async def test_delayed_message_finds_a_queue_that_is_read_after_its_topic_shrank(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create(queues=4))
        assert (await served.ask(send(b"late", queue_id=3, properties={"DELAY": "1"}))).code == 0
        assert (await served.ask(create(queues=2))).code == 0
        lookup = served.broker.state.store.lookup
        await until(lambda: lookup.max_offset(TOPIC, 1) == 1, "the message is delivered")
        assert texts(await served.ask(pull(queue_id=1))) == [b"late"]


async def test_topic_without_permission_to_read_is_not_read(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create())
        await put(served, b"hello")
        assert (await served.ask(create(perm=2))).code == 0
        assert (await served.ask(pull())).code == ResponseCode.NO_PERMISSION
        assert (await served.ask(create(perm=6))).code == 0
        assert texts(await served.ask(pull())) == [b"hello"]


async def test_deleted_topic_leaves_no_queue_offset_or_statistic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create())
        await put(served, b"one", b"two")
        await served.ask(commit(2))
        deleting = headers.DeleteTopicRequest(topic=TOPIC)
        await told(served, RequestCode.DELETE_TOPIC_IN_BROKER, deleting)

        state = served.broker.state
        assert state.topics.get(TOPIC) is None
        assert state.store.queue(TOPIC, 0) is None
        assert state.offsets.committed(TOPIC, GROUP, 0) == -1
        assert state.statistics.find("TOPIC_PUT_NUMS", TOPIC) is None
        await told(served, RequestCode.DELETE_TOPIC_IN_BROKER, deleting)  # it stays gone
        # Made again, it begins anew.
        assert (await served.ask(create())).code == 0
        (first,) = await put(served, b"again")
        assert first.queue_offset == 0
        assert texts(await served.ask(pull())) == [b"again"]


async def test_topics_and_groups_are_there_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create(queues=7, attributes="+message.type=FIFO"))
        group = java_json.encode({"groupName": GROUP, "retryMaxTimes": 3})
        asked = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
        assert (await served.ask(asked)).code == 0
    async with running_broker(tmp_path) as served:
        topic = served.broker.state.topics.get(TOPIC)
        assert topic is not None
        assert (topic.write_queue_nums, topic.attributes) == (7, {"message.type": "FIFO"})
        kept = served.broker.state.groups.get(GROUP)
        assert kept is not None
        assert kept.retry_max_times == 3


async def test_topic_stats_count_every_queue_that_is_read_or_written(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create(read_queue_nums=3, write_queue_nums=2))
        await put(served, b"one", b"two", queue_id=1)
        asked = headers.GetTopicStatsInfoRequest(topic=TOPIC)
        found = await body_of(served, RequestCode.GET_TOPIC_STATS_INFO, asked)
        offsets = {queue.queue_id: place for queue, place in found.offset_table.items()}
        assert {number: place.max_offset for number, place in offsets.items()} == {0: 0, 1: 2, 2: 0}
        assert offsets[0].last_update_timestamp == 0
        assert offsets[1].last_update_timestamp > 0
        unknown = headers.GetTopicStatsInfoRequest(topic="nowhere")
        reply = await served.ask(request(RequestCode.GET_TOPIC_STATS_INFO, unknown))
        assert reply.code == ResponseCode.TOPIC_NOT_EXIST


async def test_whole_topic_table_has_a_count_for_those_who_ask_for_pages(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        table = await body_of(served, RequestCode.GET_ALL_TOPIC_CONFIG)
        assert table.topic_config_table == served.broker.state.topics.all()
        assert table.mapping_data_version is not None, "a slave of Apache's compares it"
        paged = headers.GetAllTopicConfigRequest(topic_seq=0, max_topic_num=2)
        reply = await told(served, RequestCode.GET_ALL_TOPIC_CONFIG, paged)
        assert reply.ext["totalTopicNum"] == str(len(table.topic_config_table))


async def test_queues_of_topics_that_do_not_exist_are_cleaned(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create())
        await put(served, b"kept")
        await put(served, b"lost", topic="lost")
        served.broker.state.topics.delete("lost")
        await told(served, RequestCode.CLEAN_UNUSED_TOPIC)
        assert {topic for topic, _ in served.broker.state.store.queues()} == {TOPIC}


async def test_system_topics_are_listed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, broker_cluster_name="east") as served:
        found = await body_of(served, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "east", "east_REPLY_TOPIC", "broker-a"} <= set(
            found.topic_list
        )


# --- queries --------------------------------------------------------------------------------


def by_key(key: str, *, unique: bool = False, limit: int = 64, topic: str = TOPIC) -> Command:
    header = headers.QueryMessageRequest(
        topic=topic,
        key=key,
        max_num=limit,
        begin_timestamp=0,
        end_timestamp=FOREVER_MS,
        unique_key_query=unique,
    )
    return request(RequestCode.QUERY_MESSAGE, header)


async def test_messages_are_found_by_each_of_their_keys(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        for number in range(3):
            properties = {"KEYS": f"same own-{number}", "UNIQ_KEY": f"ID{number}"}
            await put(served, b"body %d" % number, properties=properties)
        assert len(texts(await served.ask(by_key("same")))) == 3
        assert texts(await served.ask(by_key("own-1"))) == [b"body 1"]
        assert texts(await served.ask(by_key("ID2", unique=True))) == [b"body 2"]
        assert len(texts(await served.ask(by_key("same", limit=2)))) == 2
        reply = headers.QueryMessageReply.from_ext((await served.ask(by_key("same"))).ext)
        last = records(await served.ask(by_key("ID2", unique=True)))[0]
        assert reply.index_last_update_phyoffset == last.physical_offset
        assert reply.index_last_update_timestamp == last.store_timestamp


async def test_key_that_no_message_has_is_answered_with_22_and_both_fields(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await put(served, b"body", properties={"KEYS": "here"})
        for asked in (by_key("elsewhere"), by_key("here", topic="other")):
            reply = await served.ask(asked)
            assert reply.code == ResponseCode.QUERY_NOT_FOUND
            found = headers.QueryMessageReply.from_ext(reply.ext)
            assert (found.index_last_update_timestamp, found.index_last_update_phyoffset) == (0, 0)


async def test_message_is_found_by_the_id_that_its_sender_got(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        replies = await put(served, b"one", b"two")
        offset = parse_offset_message_id(replies[1].msg_id)[2]
        asked = request(RequestCode.VIEW_MESSAGE_BY_ID, headers.ViewMessageRequest(offset=offset))
        assert texts(await served.ask(asked)) == [b"two"]
        nothing = headers.ViewMessageRequest(offset=offset + 1)
        reply = await served.ask(request(RequestCode.VIEW_MESSAGE_BY_ID, nothing))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert str(offset + 1) in (reply.remark or "")


async def test_entries_of_a_consume_queue_are_shown(tmp_path: Path) -> None:
    async with running_broker(tmp_path, mapped_file_size_consume_queue=20 * 3) as served:
        await put(served, *(b"%d" % number for number in range(8)))
        asked = headers.QueryConsumeQueueRequest(topic=TOPIC, queue_id=0, index=1, count=5)
        found = await body_of(served, RequestCode.QUERY_CONSUME_QUEUE, asked)
        assert (found.min_queue_index, found.max_queue_index) == (0, 8)
        lookup = served.broker.state.store.lookup
        places = [entry.physic_offset for entry in found.queue_data]
        assert [lookup.record_at(place).body for place in places] == [b"1", b"2", b"3", b"4", b"5"]  # type: ignore[union-attr]
        for wrong in ({"queue_id": 7}, {"index": 8}, {"index": -1}):
            given: dict[str, Any] = {"topic": TOPIC, "count": 1, **wrong}
            header = headers.QueryConsumeQueueRequest(**given)
            reply = await served.ask(request(RequestCode.QUERY_CONSUME_QUEUE, header))
            assert reply.code == ResponseCode.SYSTEM_ERROR
