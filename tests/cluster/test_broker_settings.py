"""What administrators ask of a broker, over the wire: settings, statistics, cleaning up."""

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
)
from tests.support import ServedBroker, running_broker, until

from firearrow.hot import parse_offset_message_id
from firearrow.model.errors import ResponseCode
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.properties_text import parse_properties

if TYPE_CHECKING:
    from pathlib import Path


FOREVER_MS = 1 << 60


# --- settings -------------------------------------------------------------------------------


async def settings_of(served: ServedBroker) -> dict[str, str]:
    return parse_properties((await told(served, RequestCode.GET_BROKER_CONFIG)).body)


async def change(served: ServedBroker, text: str) -> Command:
    return await served.ask(request(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode()))


async def test_settings_can_be_read_changed_and_read_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        before = await told(served, RequestCode.GET_BROKER_CONFIG)
        settings = parse_properties(before.body)
        assert settings["brokerName"] == "broker-a"
        assert settings["listenPort"] == served.broker.address.rpartition(":")[2]
        assert (await change(served, "fileReservedTime=24\nlongPollingEnable=false\n")).code == 0
        after = await told(served, RequestCode.GET_BROKER_CONFIG)
        changed = {"fileReservedTime": "24", "longPollingEnable": "false"}
        assert parse_properties(after.body) == settings | changed
        assert after.ext["version"] != before.ext["version"]


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("brokerConfigPath=x", ResponseCode.NO_PERMISSION, "brokerConfigPath"),
        ("listenPort=1", ResponseCode.NO_PERMISSION, "listenPort"),
        ("storePathRootDir=/elsewhere", ResponseCode.NO_PERMISSION, "storePathRootDir"),
        ("fileReservedTime=soon", ResponseCode.SYSTEM_ERROR, "a number"),
        ("brokerPermission=8", ResponseCode.SYSTEM_ERROR, "0 to 7"),
        ("fileReservedTim=1", ResponseCode.SYSTEM_ERROR, "did you mean 'fileReservedTime'"),
        ("sendMessageThreadPoolNums=4", ResponseCode.SYSTEM_ERROR, "no effect"),
        ("fileReservedTime=\\uzzzz", ResponseCode.SYSTEM_ERROR, "escape"),
        ("fileReservedTime=1\nlistenPort=1", ResponseCode.NO_PERMISSION, "listenPort"),
        ("x=" + "y" * 70_000, ResponseCode.SYSTEM_ERROR, "limit"),
    ],
)
async def test_setting_that_must_not_or_cannot_change_stays_as_it_was(
    tmp_path: Path, text: str, code: ResponseCode, words: str
) -> None:
    async with running_broker(tmp_path) as served:
        before = await settings_of(served)
        reply = await change(served, text)
        assert reply.code == code
        assert words in (reply.remark or "")
        assert await settings_of(served) == before


async def test_changed_settings_go_into_the_file_that_the_broker_started_with(
    tmp_path: Path,
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=broker-a\nfileReservedTime=72\n")
    async with running_broker(tmp_path / "store", broker_config_path=file) as served:
        assert (await change(served, "fileReservedTime=24")).code == 0
        assert parse_properties(file.read_bytes()) == {
            "brokerName": "broker-a",
            "fileReservedTime": "24",
        }


async def test_changed_settings_take_effect(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        assert (await served.ask(send(b"x" * 2_000))).code == 0
        await served.ask(pull())  # makes the group
        assert (await change(served, "maxMessageSize=1000")).code == 0
        assert (await served.ask(send(b"x" * 2_000))).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await change(served, "autoCreateTopicEnable=false")).code == 0
        unknown = await served.ask(send(topic="brand-new"))
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
        assert (await change(served, "autoCreateSubscriptionGroup=false")).code == 0
        unknown = await served.ask(pull(group="brand-new"))
        assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (await change(served, "maxTransferCountOnMessageInMemory=1")).code == 0
        await put(served, b"second")
        assert len(records(await served.ask(pull()))) == 1


async def test_topics_made_on_first_send_follow_a_changed_queue_count(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_topic_enable=False) as served:
        text = "autoCreateTopicEnable=true\ndefaultTopicQueueNums=3\n"
        assert (await change(served, text)).code == 0
        assert (await served.ask(send(topic="young", default_topic_queue_nums=16))).code == 0
        topic = served.broker.state.topics.get("young")
        assert topic is not None
        assert topic.write_queue_nums == 3


async def test_permission_of_the_whole_broker_is_in_every_route(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create())

        async def perm() -> int:
            found = java_json.decode((await route(served)).body, bodies.TopicRouteData)
            return found.queue_datas[0].perm

        assert (await change(served, "brokerPermission=4")).code == 0
        await served.broker.state.registration.registered()
        assert await perm() == 4
        assert (await change(served, "brokerPermission=6")).code == 0
        await served.broker.state.registration.registered()
        assert await perm() == 6


# --- how it is doing ------------------------------------------------------------------------


RUNTIME_KEYS = """
brokerVersionDesc brokerActive bootTimestamp runtime putTps getFoundTps getMissTps getTotalTps
getTransferredTps msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow sendThreadPoolQueueSize
sendThreadPoolQueueCapacity pullThreadPoolQueueSize pullThreadPoolQueueCapacity
litePullThreadPoolQueueSize litePullThreadPoolQueueCapacity queryThreadPoolQueueSize
queryThreadPoolQueueCapacity ackThreadPoolQueueSize ackThreadPoolQueueCapacity
sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills
queryThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueHeadWaitTimeMills
ackThreadPoolQueueHeadWaitTimeMills EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity
pageCacheLockTimeMills earliestMessageTimeStamp commitLogDiskRatio consumeQueueDiskRatio
commitLogMinOffset commitLogMaxOffset timerReadBehind timerOffsetBehind timerCongestNum
timerEnqueueTps timerDequeueTps dispatchBehindBytes dispatchMaxBuffer
startAcceptSendRequestTimeStamp remainTransientStoreBufferNumbs remainHowManyDataToFlush
remainHowManyDataToCommit commitLogDirCapacity putMessageEntireTimeMax putMessageTimesTotal
putMessageFailedTimes putMessageSizeTotal putMessageAverageSize putMessageDistributeTime
getMessageEntireTimeMax putLatency99 putLatency999
"""


async def info_of(served: ServedBroker) -> dict[str, str]:
    table = await body_of(served, RequestCode.GET_BROKER_RUNTIME_INFO)
    assert isinstance(table, bodies.KVTable)
    return table.table


async def test_runtime_info_has_every_key_that_tools_read(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        info = await info_of(served)
        assert [key for key in RUNTIME_KEYS.split() if key not in info] == []
        assert f"commitLogDiskRatio_{tmp_path / 'commitlog'}" in info
        for key in ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"):
            assert [float(number) for number in info[key].split(" ")] == [0.0, 0.0, 0.0]


async def test_runtime_info_counts_what_was_put_and_got(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        first, *_ = await put(served, b"one", b"two", b"three")
        await served.ask(pull())
        await served.ask(send(b""))  # refused
        await served.ask(pull(3))  # nothing there yet
        info = await info_of(served)
        assert info["msgPutTotalTodayNow"] == info["putMessageTimesTotal"] == "3"
        assert info["msgGetTotalTodayNow"] == "3"
        assert info["putMessageFailedTimes"] == "1"
        end = served.broker.state.store.statistics().end_offset
        assert info["commitLogMaxOffset"] == info["putMessageSizeTotal"] == str(end)
        assert float(info["putMessageAverageSize"]) == end / 3
        offset = parse_offset_message_id(first.msg_id)[2]
        record = served.broker.state.store.lookup.record_at(offset)
        assert record is not None
        assert info["earliestMessageTimeStamp"] == str(record.store_timestamp)
        assert float(info["getMissTps"].split(" ")[0]) > 0
        assert 0 < float(info["commitLogDiskRatio"]) < 1


async def test_statistics_show_sums_of_a_minute_an_hour_and_a_day(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await put(served, b"one", b"two")
        for name, key, count in (
            ("TOPIC_PUT_NUMS", TOPIC, 2),
            ("BROKER_PUT_NUMS", "DefaultCluster", 2),
        ):
            asked = headers.ViewBrokerStatsDataRequest(stats_name=name, stats_key=key)
            found = await body_of(served, RequestCode.VIEW_BROKER_STATS_DATA, asked)
            assert [found.stats_minute.sum, found.stats_hour.sum, found.stats_day.sum] == [
                count
            ] * 3
            assert found.stats_minute.tps > 0
        await served.ask(pull())
        asked = headers.ViewBrokerStatsDataRequest(
            stats_name="GROUP_GET_NUMS", stats_key=f"{TOPIC}@{GROUP}"
        )
        found = await body_of(served, RequestCode.VIEW_BROKER_STATS_DATA, asked)
        assert (found.stats_minute.sum, found.stats_minute.avgpt) == (2, 2.0)


async def test_statistic_that_nobody_counted_is_answered_with_code_1(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        asked = headers.ViewBrokerStatsDataRequest(stats_name="TOPIC_PUT_NUMS", stats_key="nope")
        reply = await served.ask(request(RequestCode.VIEW_BROKER_STATS_DATA, asked))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark == "nothing was counted as TOPIC_PUT_NUMS for nope"


async def test_lone_master_says_that_it_has_no_slaves(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await put(served, b"one")
        found = await body_of(served, RequestCode.GET_BROKER_HA_STATUS)
        end = served.broker.state.store.statistics().end_offset
        assert (found.master, found.in_sync_slave_nums) == (True, 0)
        assert found.master_commit_log_max_offset == end


async def test_expired_log_files_go_when_asked_for(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "mapped_file_size_commit_log": 4096,
        "clean_resource_interval": 10,
        "delete_when": "",
        "file_reserved_time": 0,
    }
    async with running_broker(tmp_path, **settings) as served:
        await put(served, *(b"x" * 1_000 for _ in range(12)))
        store = served.broker.state.store
        assert store.statistics().min_offset == 0
        await told(served, RequestCode.DELETE_EXPIRED_COMMITLOG)
        await until(lambda: store.statistics().min_offset > 0, "the oldest files are gone")
        await told(served, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        assert served.broker.state.store.lookup.min_offset(TOPIC, 0) > 0


async def test_offsets_can_be_read_as_a_whole(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await put(served, b"one", b"two")
        await served.ask(commit(2))
        reply = await told(served, RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert b'"orders@billing":{0:2}' in reply.body, "Java reads keys without quotes"
        delays = await told(served, RequestCode.GET_ALL_DELAY_OFFSET)
        assert b'"offsetTable":{}' in delays.body
