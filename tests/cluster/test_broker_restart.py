"""A broker's life: what it keeps over a restart, how it stops, and why it may not start."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker_requests import (
    GROUP,
    TOPIC,
    commit,
    heartbeat,
    pull,
    query_offset,
    send,
    sent,
    texts,
)
from tests.support import (
    PATIENCE_S,
    UpProcess,
    crash,
    running_broker,
    running_nameserver,
    until,
)

from firearrow.base.errors import ConfigError
from firearrow.base.runtime import SystemClock
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.model.errors import ResponseCode
from firearrow.model.group import SubscriptionGroupConfig
from firearrow.model.topic import TopicConfig
from firearrow.net.client import RemotingClient
from firearrow.net.errors import NetworkError
from firearrow.store.errors import StoreInUse
from firearrow.testing import ManualClock
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request

if TYPE_CHECKING:
    from pathlib import Path


def route_of(topic: str) -> Command:
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.GetRouteInfoRequest(topic=topic))


def as_apache_wrote(path: Path) -> Any:
    """A config file, its bare integer keys put in quotes for a strict reader."""
    return json.loads(re.sub(r"([{,]\s*)(-?\d+)(\s*:)", r'\1"\2"\3', path.read_text()))


# --- what is kept ---------------------------------------------------------------------------


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        for number in range(5):
            sent(await served.ask(send(b"%d" % number, queue_id=1)))
        await served.ask(commit(3, queue_id=1))
        state = served.broker.state
        state.groups.put(SubscriptionGroupConfig(group_name="custom", retry_max_times=2))
        state.groups.forbid_reading("custom", TOPIC, forbidden=True)
        state.topics.put(TopicConfig(topic_name="wide", read_queue_nums=9, write_queue_nums=7))
        version = state.topics.version
    assert not (tmp_path / "abort").exists()
    async with running_broker(tmp_path) as served:
        state = served.broker.state
        assert texts(await served.ask(pull(queue_id=1))) == [b"0", b"1", b"2", b"3", b"4"]
        assert (await served.ask(query_offset(queue_id=1))).ext == {"offset": "3"}
        group, topic = state.groups.get("custom"), state.topics.get("wide")
        assert group is not None
        assert topic is not None
        assert group.retry_max_times == 2
        assert (topic.read_queue_nums, topic.write_queue_nums) == (9, 7)
        assert not state.groups.may_read("custom", TOPIC)
        assert state.topics.version.counter > version.counter
        assert sent(await served.ask(send(queue_id=1))).queue_offset == 5
        assert (await served.ask_nameserver(route_of("wide"))).code == 0


async def test_files_have_the_shape_that_apache_reads(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        sent(await served.ask(send(queue_id=1)))
        await served.ask(heartbeat())
        await served.ask(commit(1, queue_id=1))
    config = tmp_path / "config"
    topics = as_apache_wrote(config / "topics.json")
    assert set(topics) == {"dataVersion", "topicConfigTable"}
    assert set(topics["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
    assert topics["topicConfigTable"][TOPIC] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": TOPIC,
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    groups = as_apache_wrote(config / "subscriptionGroup.json")
    assert groups["subscriptionGroupTable"][GROUP] == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": GROUP,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    assert groups["forbiddenTable"] == {}
    offsets = as_apache_wrote(config / "consumerOffset.json")
    assert offsets["offsetTable"] == {f"{TOPIC}@{GROUP}": {"1": 1}}
    assert as_apache_wrote(config / "delayOffset.json")["offsetTable"] == {}


async def test_tables_of_an_older_apache_are_taken_over(tmp_path: Path) -> None:
    """4.9 writes fewer members, and nothing but the table into two of the files."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text(
        '{\n\t"dataVersion":{"counter":3,"timestamp":1},\n\t"topicConfigTable":{"orders":'
        '{"order":false,"perm":6,"readQueueNums":5,"topicFilterType":"SINGLE_TAG",'
        '"topicName":"orders","topicSysFlag":0,"writeQueueNums":5}}}'
    )
    (config / "subscriptionGroup.json").write_text(
        '{"dataVersion":{"counter":1,"timestamp":1},"subscriptionGroupTable":{"billing":'
        '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        '"consumeFromMinEnable":true,"groupName":"billing",'
        '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":1,'
        '"whichBrokerWhenConsumeSlowly":1}}}'
    )
    (config / "consumerOffset.json").write_text(
        '{"offsetTable":{"orders@billing":{0:7,1:9\n\t\t},"orders@billing@broadcast":{0:1\n\t\t}}}'
    )
    (config / "delayOffset.json").write_text('{"offsetTable":{3:0\n\t}}')
    async with running_broker(tmp_path) as served:
        state = served.broker.state
        topic, group = state.topics.get("orders"), state.groups.get("billing")
        assert topic is not None
        assert group is not None
        assert (topic.read_queue_nums, group.retry_max_times) == (5, 3)
        assert (await served.ask(query_offset(queue_id=1))).ext == {"offset": "9"}
        assert state.offsets.committed("orders", "billing@broadcast", 0) == 1


async def test_table_without_a_version_is_taken_over(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text('{"topicConfigTable":{"orders":{"topicName":"orders"}}}')
    (config / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{}}')
    async with running_broker(tmp_path) as served:
        assert served.broker.state.topics.get("orders") is not None
        sent(await served.ask(send(topic="more")))


async def test_offsets_are_written_every_few_seconds_and_survive_a_crash(tmp_path: Path) -> None:
    clock = ManualClock()
    alive, crashed = tmp_path / "alive", tmp_path / "crashed"
    async with running_broker(alive, clock) as served:
        sent(await served.ask(send()))
        await served.ask(commit(1))
        await clock.advance(5_000)
        await until((alive / "config" / "consumerOffset.json").exists, "the offsets are written")
        crash(alive, crashed)
    async with running_broker(crashed, clock) as served:
        assert (await served.ask(query_offset())).ext == {"offset": "1"}
        assert texts(await served.ask(pull())) == [b"hello"]


async def test_new_topic_is_on_disk_soon_and_survives_a_crash(tmp_path: Path) -> None:
    alive, crashed = tmp_path / "alive", tmp_path / "crashed"
    async with running_broker(alive) as served:
        sent(await served.ask(send(topic="fresh")))
        file = alive / "config" / "topics.json"
        await until(lambda: "fresh" in file.read_text(), "the topic is written")
        crash(alive, crashed)
    async with running_broker(crashed) as served:
        assert texts(await served.ask(pull(topic="fresh"))) == [b"hello"]


async def test_table_that_cannot_be_understood_stops_the_start_and_says_which(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path):
        pass
    for path in (tmp_path / "config").glob("topics.json*"):
        path.write_text("{ not json")
    with pytest.raises(ConfigError, match=r"topics\.json"):
        async with running_broker(tmp_path):
            pass
    # The store was let go of: mended, it starts.
    for path in (tmp_path / "config").glob("topics.json*"):
        path.unlink()
    async with running_broker(tmp_path) as served:
        sent(await served.ask(send()))


# --- registration ---------------------------------------------------------------------------


async def test_broker_registers_again_with_a_name_server_that_forgot_it(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        address = served.nameserver.address
        await served.nameserver.stop()
        port = int(address.rpartition(":")[2])
        async with running_nameserver(clock, listen_port=port) as names:
            assert (await names.ask(route_of("TBW102"))).code == ResponseCode.TOPIC_NOT_EXIST
            await clock.advance(30_000)
            code = -1
            while code != 0:
                code = (await names.ask(route_of("TBW102"))).code


async def test_broker_starts_without_its_name_server_and_finds_it_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with running_nameserver() as names:
        port = int(names.server.address.rpartition(":")[2])
    async with (
        running_broker(tmp_path, clock, namesrv_addr=f"127.0.0.1:{port}") as served,
        running_nameserver(clock, listen_port=port) as names,
    ):
        sent(await served.ask(send()))
        for _ in range(3):
            await clock.advance(30_000)
        code = -1
        while code != 0:
            code = (await names.ask(route_of("TBW102"))).code
    assert caplog.text.count("cannot register with name server") == 1


async def test_broker_that_stops_is_gone_from_the_name_server_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        assert (await served.ask_nameserver(route_of("TBW102"))).code == 0
        await served.broker.stop()
        reply = await served.ask_nameserver(route_of("TBW102"))
        assert reply.code == ResponseCode.TOPIC_NOT_EXIST


async def test_broker_registers_with_every_name_server(tmp_path: Path) -> None:
    async with running_nameserver() as one, running_nameserver() as two:
        both = f"{one.server.address}; {two.server.address}"
        async with running_broker(tmp_path, namesrv_addr=both) as served:
            for names in (one, two):
                reply = await names.ask(route_of("TBW102"))
                route = java_json.decode(reply.body, bodies.TopicRouteData)
                assert route.broker_datas[0].broker_addrs == {0: served.broker.address}


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:", "127.0.0.1:99999999"])
async def test_address_that_is_none_is_refused_before_anything_starts(
    tmp_path: Path, address: str
) -> None:
    with pytest.raises(ConfigError, match="namesrvAddr"):
        async with running_broker(tmp_path, namesrv_addr=address):
            pass
    assert not (tmp_path / "abort").exists()


# --- starting and stopping ------------------------------------------------------------------


async def test_directory_in_use_is_refused_with_a_remedy(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        # In another process: POSIX locks do not hold within one.
        command = [sys.executable, "-m", "firearrow", "up", "--data", str(tmp_path.parent)]
        command += ["--nameserver-port", "0", "--broker-port", "0"]
        command += ["-o", f"storePathRootDir={tmp_path}"]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    assert done.returncode == 2
    assert "is in use by another process: stop it, or choose another" in done.stderr
    assert "Traceback" not in done.stderr
    assert StoreInUse.__name__ not in done.stderr


async def test_port_in_use_is_refused_and_leaves_the_directory_clean(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "one") as served:
        port = int(served.broker.address.rpartition(":")[2])
        settings: dict[str, Any] = {"store_path_root_dir": tmp_path / "two", "listen_port": port}
        with pytest.raises(ConfigError, match="cannot listen"):
            await Broker(BrokerConfig(**settings)).start()
    assert not (tmp_path / "two" / "abort").exists()


async def ask(process: UpProcess, *commands: Command) -> list[Command]:
    client = RemotingClient(SystemClock())
    try:
        return [await client.invoke(process.broker, one, PATIENCE_S * 1_000) for one in commands]
    finally:
        await client.close()


async def test_signal_stops_the_process_cleanly_and_nothing_is_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with UpProcess(data) as process:
        for reply in await ask(process, *(send(b"%d" % number) for number in range(20))):
            sent(reply)
        await ask(process, commit(20))
        aborts = list(data.rglob("abort"))
        assert len(aborts) == 1
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(PATIENCE_S) == 0
        assert not aborts[0].exists()
    log = process.log.read_text()
    assert "Traceback" not in log
    with UpProcess(data) as process:
        pulled, committed = await ask(process, pull(), query_offset())
        assert texts(pulled) == [b"%d" % number for number in range(20)]
        assert committed.ext == {"offset": "20"}


async def test_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with UpProcess(data) as process:
        for reply in await ask(process, *(send(b"%d" % number) for number in range(20))):
            sent(reply)
        process.popen.kill()
        process.popen.wait()
    with UpProcess(data) as process:
        (pulled,) = await ask(process, pull())
        assert texts(pulled) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_end_in_the_middle_of_sending_loses_and_repeats_nothing_that_was_answered(
    tmp_path: Path, number: signal.Signals
) -> None:
    data = tmp_path / "data"
    answered: dict[int, bytes] = {}
    with UpProcess(data) as process:
        client = RemotingClient(SystemClock())

        async def produce(name: str) -> None:
            for count in itertools.count():
                body = f"{name}-{count}".encode()
                reply = await client.invoke(process.broker, send(body), PATIENCE_S * 1_000)
                if reply.code == 0:
                    answered[sent(reply).queue_offset] = body

        producers = [asyncio.create_task(produce(f"p{number}")) for number in range(32)]
        await until(lambda: len(answered) > 500, "some are answered")
        process.popen.send_signal(number)
        ended = await asyncio.gather(*producers, return_exceptions=True)
        assert all(isinstance(one, NetworkError) for one in ended), ended
        await client.close()
        code = await asyncio.to_thread(process.popen.wait, PATIENCE_S)
        assert code == (0 if number == signal.SIGTERM else -number)
    assert bool(list(data.rglob("abort"))) == (number == signal.SIGKILL)
    with UpProcess(data) as process:
        found: list[bytes] = []
        while True:
            (reply,) = await ask(process, pull(len(found)))
            if reply.code != 0:
                break
            found += texts(reply)
    assert {offset: found[offset] for offset in answered} == answered
    assert len(set(found)) == len(found)
