"""Sending to a whole broker over the wire: what is taken, what is refused, with which words."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker_requests import (
    BORN_MS,
    TOPIC,
    batch_body,
    heartbeat,
    max_offset_of,
    properties_of,
    property_text,
    pull,
    pulled,
    records,
    send,
    send_batch,
    sent,
    texts,
)
from tests.support import ServedBroker, running_broker, until

from firearrow.model.errors import ResponseCode
from firearrow.model.group import SubscriptionGroupConfig
from firearrow.model.topic import TopicConfig
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firearrow.hot import Record

JSON, BINARY = 0, 1
LONG_TEXT = "x" * 40_000


async def stored(served: ServedBroker, **of: Any) -> list[Record]:
    """Everything in a queue, once what was sent is visible."""
    return records(await served.ask(pull(**of)))


async def put_topic(served: ServedBroker, name: str = TOPIC, **fields: Any) -> None:
    given = {"read_queue_nums": 4, "write_queue_nums": 4} | fields
    served.broker.state.topics.put(TopicConfig(topic_name=name, **given))


# --- what is taken --------------------------------------------------------------------------


@pytest.mark.parametrize("serializer", [JSON, BINARY])
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_message_is_stored_as_it_was_sent(
    tmp_path: Path, code: RequestCode, serializer: int
) -> None:
    async with running_broker(tmp_path) as served:
        properties = {"TAGS": "paid", "KEYS": "k1 k2", "UNIQ_KEY": "ID-1", "note": "héllo"}
        command = send(b"body", code=code, queue_id=2, properties=properties, flag=7)
        command.serializer = serializer
        reply = await served.ask(command)
        assert reply.serializer == serializer
        assert reply.remark is None
        assert reply.ext == {
            "msgId": sent(reply).msg_id,
            "queueId": "2",
            "queueOffset": "0",
            "transactionId": "ID-1",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        (record,) = await stored(served, queue_id=2)
        assert (record.body, record.flag, record.queue_id) == (b"body", 7, 2)
        assert (record.born_timestamp, record.reconsume_times) == (BORN_MS, 0)
        assert properties_of(record) == {
            **properties,
            "CLUSTER": "DefaultCluster",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        assert len(sent(reply).msg_id) == 32
        assert int(sent(reply).msg_id[16:], 16) == record.physical_offset


async def test_code_of_the_request_does_not_choose_between_one_message_and_a_batch(
    tmp_path: Path,
) -> None:
    body = batch_body([(b"a", {}), (b"b", {})])
    async with running_broker(tmp_path) as served:
        await served.ask(send(body, code=RequestCode.SEND_BATCH_MESSAGE, batch=False))
        assert [record.body for record in await stored(served)] == [body]
        reply = await served.ask(send(body, code=RequestCode.SEND_MESSAGE, batch=True))
        assert sent(reply).msg_id.count(",") == 1
        assert [record.body for record in await stored(served, offset=1)] == [b"a", b"b"]


async def test_batch_gets_consecutive_offsets_and_each_message_keeps_its_own_properties(
    tmp_path: Path,
) -> None:
    messages = [(f"m{i}".encode(), {"TAGS": f"t{i}", "UNIQ_KEY": f"ID-{i}"}) for i in range(3)]
    async with running_broker(tmp_path) as served:
        await served.ask(send(b"first"))
        reply = await served.ask(
            send_batch(
                batch_body(messages, flag=5), properties={"UNIQ_KEY": "OUTER", "WAIT": "true"}
            )
        )
        told = sent(reply)
        assert (told.queue_offset, told.transaction_id) == (1, "OUTER")
        _, *found = await stored(served)
        assert [int(one[16:], 16) for one in told.msg_id.split(",")] == [
            record.physical_offset for record in found
        ]
        assert [record.queue_offset for record in found] == [1, 2, 3]
        assert [record.flag for record in found] == [5, 5, 5]
        for record, (body, own) in zip(found, messages, strict=True):
            properties = properties_of(record)
            assert record.body == body
            assert properties["UNIQ_KEY"] == own["UNIQ_KEY"]
            assert properties["TAGS"] == own["TAGS"]
            assert properties["CLUSTER"] == "DefaultCluster"


async def test_one_way_send_is_stored_and_never_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        connection = await served.client.connection(served.broker.address)
        connection.invoke_oneway(send(b"quiet", oneway=True))
        # Refused ones are not answered either: a later request gets its own answer, no other.
        connection.invoke_oneway(send(b"refused", topic="no such name!", oneway=True))
        reply = await served.ask(send(b"loud"))
        assert reply.ext["queueOffset"] == "1"
        assert [record.body for record in await stored(served)] == [b"quiet", b"loud"]


async def test_broker_chooses_a_write_queue_when_the_producer_leaves_it_to_it(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        await put_topic(served, read_queue_nums=8, write_queue_nums=2)
        replies = [await served.ask(send(queue_id=-1)) for _ in range(40)]
        assert {sent(reply).queue_id for reply in replies} == {0, 1}


async def test_queue_that_is_only_read_from_still_takes_messages(tmp_path: Path) -> None:
    """While a topic shrinks, producers with an old route must not lose what they send."""
    async with running_broker(tmp_path) as served:
        await put_topic(served, read_queue_nums=4, write_queue_nums=1)
        assert sent(await served.ask(send(queue_id=3))).queue_id == 3
        assert (await served.ask(send(queue_id=4))).code == ResponseCode.INVALID_PARAMETER


async def test_message_without_an_id_gets_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        replies = [await served.ask(send()) for _ in range(3)]
        ids = [properties_of(record)["UNIQ_KEY"] for record in await stored(served)]
        assert len(set(ids)) == 3
        assert all(len(one) == 32 for one in ids)
        assert [sent(reply).transaction_id for reply in replies] == ids


async def test_broken_off_property_text_is_read_as_java_reads_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        text = "a\x011\x02empty\x01\x02b\x012"
        await served.ask(send())
        command = send()
        command.ext["i"] = text
        sent(await served.ask(command))
        properties = properties_of((await stored(served))[1])
        assert (properties["a"], properties["b"]) == ("1", "2")
        assert "empty" not in properties


@pytest.mark.parametrize("wait", ["true", "false"])
async def test_wait_property_decides_nothing_about_being_stored(tmp_path: Path, wait: str) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(send(b"x", properties={"WAIT": wait}))
        assert sent(reply).queue_offset == 0
        await until(lambda: served.broker.state.store.lookup.max_offset(TOPIC, 0) == 1)
        assert [record.body for record in await stored(served)] == [b"x"]


async def test_sends_of_one_connection_are_answered_with_their_own_offsets(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        replies = await asyncio.gather(*(served.ask(send(b"%d" % i)) for i in range(200)))
        assert [sent(reply).queue_offset for reply in replies] == list(range(200))


async def test_bits_of_the_system_flag_that_describe_addresses_are_the_brokers_own(
    tmp_path: Path,
) -> None:
    """A flag that says "IPv6" over an IPv4 address would make the record unreadable."""
    async with running_broker(tmp_path) as served:
        await served.ask(send(b"odd", sys_flag=0x30))
        await served.ask(send(b"even"))
        found = await stored(served)
        assert [record.body for record in found] == [b"odd", b"even"]
        assert found[0].sys_flag & 0x30 == 0


# --- topics that come into being ------------------------------------------------------------


async def test_unknown_topic_is_made_after_the_example_and_told_to_the_name_server(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, default_topic_queue_nums=3) as served:
        await served.ask(send(topic="new", default_topic_queue_nums=8))
        await served.ask(send(topic="small", default_topic_queue_nums=2))
        topics = served.broker.state.topics
        new, small = topics.get("new"), topics.get("small")
        assert new is not None
        assert small is not None
        assert (new.read_queue_nums, new.write_queue_nums, new.perm) == (3, 3, 6)
        assert small.write_queue_nums == 2
        route = request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.GetRouteInfoRequest(topic="small")
        )
        code = -1
        while code != 0:
            code = (await served.ask_nameserver(route)).code


@pytest.mark.parametrize(
    ("example", "settings"),
    [
        ("TBW102", {"auto_create_topic_enable": False}),
        ("nowhere", {}),
        ("BenchmarkTest", {}),  # exists, but does not let others inherit
    ],
)
async def test_topic_is_not_made_after_an_example_that_cannot_be_followed(
    tmp_path: Path, example: str, settings: dict[str, Any]
) -> None:
    async with running_broker(tmp_path, **settings) as served:
        reply = await served.ask(send(topic="new", default_topic=example))
        assert reply.code == ResponseCode.TOPIC_NOT_EXIST
        assert "topic new" in (reply.remark or "")
        assert reply.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert served.broker.state.topics.get("new") is None


async def test_cluster_topic_is_an_example_even_when_the_usual_one_is_off(tmp_path: Path) -> None:
    """The switch is about TBW102 alone; a producer may name another topic that lets it inherit."""
    async with running_broker(tmp_path, auto_create_topic_enable=False) as served:
        sent(await served.ask(send(topic="new", default_topic="DefaultCluster")))
        new = served.broker.state.topics.get("new")
        assert new is not None
        assert (new.write_queue_nums, new.perm) == (4, 6)


async def test_example_that_was_kept_from_earlier_does_not_count_when_it_is_off_now(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        assert served.broker.state.topics.get("TBW102") is not None
    async with running_broker(tmp_path, auto_create_topic_enable=False) as served:
        assert (await served.ask(send(topic="new"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_retry_topic_comes_into_being_with_one_queue_without_any_example(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, auto_create_topic_enable=False) as served:
        sent(await served.ask(send(topic="%RETRY%billing")))
        topic = served.broker.state.topics.get("%RETRY%billing")
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


# --- what is refused, in RocketMQ's order ---------------------------------------------------

BAD_TOPIC = "not/a/name"


@pytest.mark.parametrize(
    ("fields", "settings", "code", "words"),
    [
        ({"topic": BAD_TOPIC}, {}, 29, BAD_TOPIC),
        ({"topic": "t" * 128}, {}, 29, "127"),
        ({"topic": ""}, {}, 29, "topic"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, {}, 16, "SCHEDULE_TOPIC_XXXX"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, {}, 16, "forbidden"),
        ({"topic": "SELF_TEST_TOPIC"}, {}, 16, "forbidden"),
        ({"topic": "OFFSET_MOVED_EVENT"}, {}, 16, "forbidden"),
        ({"queue_id": 4}, {}, 29, "4 write queues"),
        ({"body": b""}, {}, 13, "body"),
        ({"body": b"x" * 2_000}, {"max_message_size": 1_999}, 13, "1999"),
        ({"properties": {"a": LONG_TEXT}}, {}, 13, "32767"),
        ({"properties": {"TRAN_MSG": "true"}}, {"reject_transaction_message": True}, 16, "trans"),
        # The name is looked at before the topic, the topic before the queue, the queue before
        # the message.
        ({"topic": BAD_TOPIC, "queue_id": 99, "body": b""}, {}, 29, BAD_TOPIC),
        ({"topic": "new", "queue_id": 99}, {"auto_create_topic_enable": False}, 17, "topic new"),
        ({"queue_id": 99, "properties": {"a": LONG_TEXT}}, {}, 29, "queue 99"),
    ],
)
async def test_send_that_breaks_a_rule_is_refused_with_its_code_and_a_reason(
    tmp_path: Path, fields: dict[str, Any], settings: dict[str, Any], code: int, words: str
) -> None:
    async with running_broker(tmp_path, **settings) as served:
        reply = await served.ask(send(**fields))
        assert (reply.code, words in (reply.remark or "")) == (code, True), reply.remark
        assert reply.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        sent(await served.ask(send(topic="BenchmarkTest")))


async def test_broker_that_does_not_take_messages_still_takes_those_without_order(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, broker_permission=4) as served:
        await put_topic(served, "ordered", order=True)
        await put_topic(served)
        assert (await served.ask(send(topic="ordered"))).code == ResponseCode.NO_PERMISSION
        sent(await served.ask(send()))
        sent(await served.ask(send(topic="new")))
        # Before anything else is looked at.
        reply = await served.ask(send(topic="ordered", queue_id=99))
        assert reply.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("field", "value"), [("e", None), ("e", "many"), ("f", "1.5"), ("b", None), ("g", " 5")]
)
@pytest.mark.parametrize("serializer", [JSON, BINARY])
async def test_field_that_is_missing_or_mistyped_is_named_in_the_refusal(
    tmp_path: Path, field: str, value: str | None, serializer: int
) -> None:
    async with running_broker(tmp_path) as served:
        command = send()
        command.serializer = serializer
        if value is None:
            del command.ext[field]
        else:
            command.ext[field] = value
        reply = await served.ask(command)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert f"'{field}'" in (reply.remark or "") or f" {field}" in (reply.remark or "")
        sent(await served.ask(send()))


@pytest.mark.parametrize(
    "body",
    [
        b"\0" * 10,
        batch_body([(b"a", {})])[:-1],
        batch_body([(b"a", {})]) + b"\0\0\0\1",
        b"\xff" * 64,
        b"\x7f\xff\xff\xff" + b"\0" * 40,
        b"",
    ],
)
async def test_broken_batch_is_refused_whole(tmp_path: Path, body: bytes) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(send_batch(body))
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert (await served.ask(max_offset_of(TOPIC))).ext["offset"] == "0"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "%RETRY%billing"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"body": batch_body([(b"x" * 10_000, {})] * 5)}, ResponseCode.SYSTEM_ERROR),
        ({"body": batch_body([(b"x", {}), (b"y", {"a": "x" * 32_760})])}, 13),
    ],
)
async def test_batch_that_breaks_a_rule_leaves_nothing_behind(
    tmp_path: Path, fields: dict[str, Any], code: int
) -> None:
    given: dict[str, Any] = {"body": batch_body([(b"a", {})])}
    async with running_broker(tmp_path, max_message_size=40_000) as served:
        reply = await served.ask(send_batch(**(given | fields)))
        assert reply.code == code, reply.remark
        topic = fields.get("topic", TOPIC)
        assert (await served.ask(max_offset_of(topic))).ext["offset"] == "0"


@pytest.mark.parametrize("level", ["--5", "9" * 5_000, "1e3", "³", ""])
async def test_delay_that_is_no_number_is_no_delay(tmp_path: Path, level: str) -> None:
    async with running_broker(tmp_path) as served:
        assert sent(await served.ask(send(b"now", properties={"DELAY": level}))).queue_offset == 0
        assert texts(await served.ask(pull())) == [b"now"]


async def test_text_that_no_record_can_hold_is_the_senders_mistake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path) as served:
        command = send(properties={"a": "\ud800"})
        reply = await served.ask(command)
        assert reply.code in {0, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR}
        sent(await served.ask(send()))
    assert "Traceback" not in caplog.text


# --- retried by hand ------------------------------------------------------------------------


def put_group(served: ServedBroker, **fields: Any) -> None:
    served.broker.state.groups.put(SubscriptionGroupConfig(group_name="billing", **fields))


@pytest.mark.parametrize(
    ("fields", "version", "topic"),
    [
        ({"reconsume_times": 16}, 479, "%RETRY%billing"),
        ({"reconsume_times": 17}, 479, "%DLQ%billing"),
        ({"reconsume_times": 3, "max_reconsume_times": 3}, 479, "%RETRY%billing"),
        ({"reconsume_times": 4, "max_reconsume_times": 3}, 479, "%DLQ%billing"),
        ({"reconsume_times": 4, "max_reconsume_times": 3}, 120, "%RETRY%billing"),
    ],
)
async def test_message_that_a_consumer_sends_again_ends_as_a_dead_letter_after_its_limit(
    tmp_path: Path, fields: dict[str, Any], version: int, topic: str
) -> None:
    async with running_broker(tmp_path) as served:
        command = send(b"again", topic="%RETRY%billing", **fields)
        command.version = version
        assert sent(await served.ask(command)).queue_id == 0
        assert texts(await served.ask(pull(topic=topic))) == [b"again"]


async def test_retry_limit_of_an_ordinary_message_counts_for_nothing(tmp_path: Path) -> None:
    """Go sends the field always, as 0."""
    async with running_broker(tmp_path) as served:
        sent(await served.ask(send(b"x", reconsume_times=5, max_reconsume_times=0)))
        assert texts(await served.ask(pull())) == [b"x"]


async def test_retry_for_a_group_that_must_not_come_into_being_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_subscription_group=False) as served:
        reply = await served.ask(send(topic="%RETRY%billing"))
        assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        put_group(served)
        sent(await served.ask(send(topic="%RETRY%billing")))


# --- four states ----------------------------------------------------------------------------


class FailingSyncer:
    """A disk that fails every sync."""

    def begin(self, _: object, done: Callable[[OSError | None], None]) -> None:
        asyncio.get_running_loop().call_soon(done, OSError(5, "Input/output error"))

    def close(self) -> None:
        pass


async def test_message_that_did_not_reach_the_disk_is_answered_so_with_all_fields(
    tmp_path: Path,
) -> None:
    """Java counts it as sent, and reads the fields without looking."""
    async with running_broker(tmp_path) as served:
        sent(await served.ask(send()))
        flusher = served.broker.state.store._flusher  # noqa: SLF001
        flusher._syncer.close()  # noqa: SLF001
        flusher._syncer = FailingSyncer()  # noqa: SLF001
        reply = await served.ask(send())
        assert reply.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"} <= reply.ext.keys()
        # What the disk refused once is in doubt: nothing more is taken.
        reply = await served.ask(send())
        assert reply.code in {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLUSH_DISK_TIMEOUT}
    assert (tmp_path / "abort").exists()


async def test_store_that_takes_nothing_answers_not_available(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, disk_free_bytes_min=1 << 60, clean_resource_interval=10
    ) as served:
        await until(
            lambda: served.broker.state.store.statistics().read_only, "the store closes its door"
        )
        reply = await served.ask(send())
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert reply.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


async def test_region_and_trace_switch_follow_the_settings(tmp_path: Path) -> None:
    async with running_broker(tmp_path, region_id="north", trace_on=False) as served:
        reply = await served.ask(send())
        assert (reply.ext["MSG_REGION"], reply.ext["TRACE_ON"]) == ("north", "false")
        refused = await served.ask(send(topic=BAD_TOPIC))
        assert refused.ext == {"MSG_REGION": "north", "TRACE_ON": "false"}


async def test_unknown_request_is_told_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(Command(9999, {}))
        assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "9999" in (reply.remark or "")


async def test_heartbeat_and_send_share_a_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        assert (await served.ask(heartbeat(group=None, producer="shop"))).code == 0
        sent(await served.ask(send()))
        assert pulled(await served.ask(pull())).max_offset == 1
        assert property_text({"a": "b"}) == "a\x01b\x02"


async def test_a_priority_chooses_the_queue_on_both_lanes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await put_topic(served)
        for _ in range(3):  # the first opens the gate of its queue
            sent(await served.ask(send(b"plain", queue_id=0)))
        reply = sent(await served.ask(send(properties={"_SYS_MSG_PRIORITY_": "2"})))
        assert (reply.queue_id, reply.queue_offset) == (2, 0)
        reply = sent(await served.ask(send(properties={"_SYS_MSG_PRIORITY_": "77"})))
        assert (reply.queue_id, reply.queue_offset) == (3, 0)
