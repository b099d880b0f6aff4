"""A master and its slaves in one process, on real sockets: one log, twice."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker_requests import GROUP, TOPIC, commit, heartbeat, pull, send, sent, texts
from tests.support import PATIENCE_S, SMALL_BROKER, crash, running_nameserver, until

from firearrow import hot
from firearrow.aio import PushConsumer
from firearrow.base.errors import ConfigError
from firearrow.base.runtime import SystemClock
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig, BrokerRole
from firearrow.model.errors import ResponseCode
from firearrow.model.group import ConsumeFromWhere
from firearrow.net.client import RemotingClient
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from firearrow.client.message import ReceivedMessage
    from firearrow.wire.command import Command

QUICK: dict[str, Any] = {
    "slave_sync_interval": 100,
    "sync_broker_metadata_period": 100,
}


class Pair:
    """A name server, a master and slaves of one broker name, each startable at will."""

    def __init__(self, folder: Path, nameserver: str) -> None:
        self.folder = folder
        self.nameserver = nameserver
        self.brokers: dict[int, Broker] = {}
        self.client = RemotingClient(SystemClock())

    async def start(self, number: int, **settings: Any) -> Broker:
        role = BrokerRole.SLAVE if number else BrokerRole.ASYNC_MASTER
        given = SMALL_BROKER | {
            "store_path_root_dir": self.folder / f"broker-{number}",
            "namesrv_addr": self.nameserver,
            "broker_id": number,
            "broker_role": role,
        }
        broker = Broker(BrokerConfig(**(given | QUICK | settings)), SystemClock())
        await broker.start()
        self.brokers[number] = broker
        return broker

    async def stop(self, number: int) -> None:
        await self.brokers.pop(number).stop()

    async def close(self) -> None:
        for number in sorted(self.brokers, reverse=True):
            await self.stop(number)
        await self.client.close()

    async def ask(self, number: int, command: Command) -> Command:
        address = self.brokers[number].address
        return await self.client.invoke(address, command, PATIENCE_S * 1_000)

    def end(self, number: int) -> int:
        return self.brokers[number].replication.max_offset

    async def caught_up(self, number: int = 1) -> None:
        """Wait until a slave has what the master has, and knows its topics."""
        await until(lambda: self.end(number) == self.end(0), "the slave's log")
        slave = self.brokers[number].state
        await until(lambda: slave.store.statistics().dispatched_offset == self.end(0), "the queues")
        rounds = self.brokers[number].roles.sync.rounds
        await until(lambda: self.brokers[number].roles.sync.rounds > rounds + 1, "the tables")

    def log_of(self, number: int, size: int) -> bytes:
        folder = self.folder / f"broker-{number}" / "commitlog"
        content = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        return content[:size]


@asynccontextmanager
async def pair(folder: Path, **settings: Any) -> AsyncIterator[Pair]:
    async with running_nameserver() as names:
        both = Pair(folder, names.server.address)
        try:
            await both.start(0, **settings)
            yield both
        finally:
            await both.close()


async def test_a_slave_that_starts_later_has_the_same_bytes_and_serves_them(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as both:
        for number in range(20):
            sent(await both.ask(0, send(b"%d" % number)))
        await both.start(1)
        await both.ask(0, send(b"20"))
        await both.caught_up()
        end = both.end(0)
        await both.stop(0)
        await both.ask(1, heartbeat())
        reply = await both.ask(1, pull())
        assert reply.code == ResponseCode.SUCCESS
        assert texts(reply) == [b"%d" % number for number in range(21)]
        await both.stop(1)
        assert both.log_of(1, end) == both.log_of(0, end)


async def test_a_slave_that_was_away_goes_on_where_it_was_also_over_ends_of_files(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as both:
        await both.start(1)
        await both.ask(0, send(b"first"))
        await both.caught_up()
        await both.stop(1)
        for _ in range(30):
            sent(await both.ask(0, send(bytes(100_000))))  # three files
        await both.start(1)
        sent(await both.ask(0, send(b"last")))
        await both.caught_up()
        end = both.end(0)
        assert both.brokers[1].state.store.lookup.max_offset(TOPIC, 0) == 32
        await both.close()
        assert both.log_of(1, end) == both.log_of(0, end)


async def test_a_slave_takes_no_message_and_makes_no_topic(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start(1)
        reply = await both.ask(1, send(topic="new"))
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert both.brokers[1].state.topics.get("new") is None
        assert both.end(1) == 0


async def test_a_slave_with_the_number_of_a_master_does_not_start(tmp_path: Path) -> None:
    config = BrokerConfig(broker_role=BrokerRole.SLAVE, store_path_root_dir=tmp_path)
    with pytest.raises(ConfigError, match="brokerId above 0"):
        Broker(config)


async def test_a_synchronous_master_answers_when_a_slave_has_the_message_too(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path, broker_role=BrokerRole.SYNC_MASTER) as both:
        assert (await both.ask(0, send())).code == ResponseCode.SLAVE_NOT_AVAILABLE
        await both.start(1)
        await both.caught_up()
        for number in range(50):  # by compiled code, if there is any
            message = send(b"%d" % number, properties={"UNIQ_KEY": f"{number}"})
            assert (await both.ask(0, message)).code == ResponseCode.SUCCESS
            assert both.end(1) == both.end(0)
        express = both.brokers[0].express
        assert express is not None
        assert express.passed == (50 if hot.KIND == "native" else 0)
        await both.stop(1)
        await until(lambda: not both.brokers[0].replication.followers(), "the slave's leaving")
        assert (await both.ask(0, send())).code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_replicas_that_are_missing_are_waited_for_and_then_the_producer_is_told(
    tmp_path: Path,
) -> None:
    settings = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 3, "slave_timeout": 300}
    async with pair(tmp_path, **settings) as both:
        await both.start(1)
        await both.caught_up()
        assert (await both.ask(0, send())).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (await both.ask(0, send())).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        await both.start(2)
        await both.caught_up(2)
        assert (await both.ask(0, send())).code == ResponseCode.SUCCESS


async def test_nothing_is_stored_while_fewer_replicas_are_in_sync_than_there_must_be(
    tmp_path: Path,
) -> None:
    settings = {
        "broker_role": BrokerRole.SYNC_MASTER,
        "in_sync_replicas": 2,
        "min_in_sync_replicas": 2,
    }
    async with pair(tmp_path, **settings) as both:
        reply = await both.ask(0, send())
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "IN_SYNC_REPLICAS_NOT_ENOUGH" in (reply.remark or "")
        assert both.end(0) == 0
        await both.start(1)
        await until(both.brokers[0].replication.progress.in_sync, "the slave")
        assert (await both.ask(0, send())).code == ResponseCode.SUCCESS


async def test_topics_groups_and_offsets_follow_the_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start(1)
        sent(await both.ask(0, send(b"one")))
        await both.ask(0, heartbeat())
        await both.ask(0, commit(1))
        await both.caught_up()
        slave = both.brokers[1].state
        assert slave.topics.get(TOPIC) == both.brokers[0].state.topics.get(TOPIC)
        assert slave.groups.get(GROUP) is not None
        assert slave.offsets.committed(TOPIC, GROUP, 0) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="filters need Linux's seccomp")
async def test_python_filters_follow_a_master_that_may_install_them(tmp_path: Path) -> None:
    on: dict[str, Any] = {"filter_server_nums": 1, "filter_installers": "127.0.0.1"}
    async with pair(tmp_path, **on) as both:
        large = "def matches(properties, body):\n    return int(body) > 5\n"
        install = headers.InstallFilterRequest(name="large")
        asked = request(RequestCode.INSTALL_FILTER, install, large.encode())
        assert (await both.ask(0, asked)).code == 0
        granting = await both.start(1, **on)
        here = granting.state.filter_server
        await until(lambda: [one.source for one in here.all()] == [large], "the filter")
        await both.ask(1, request(RequestCode.INSTALL_FILTER, headers.InstallFilterRequest(
            name="own"), large.encode()))  # fmt: skip
        remove = headers.RemoveFilterRequest(name="large")
        assert (await both.ask(0, request(RequestCode.REMOVE_FILTER, remove))).code == 0
        await until(lambda: [one.name for one in here.all()] == ["own"], "only the slave's own")

        # Who does not name the master gets nothing, however often it asks for the other tables.
        assert (await both.ask(0, asked)).code == 0
        wary = await both.start(2, **(on | {"filter_installers": "10.0.0.1"}))
        await both.caught_up(2)
        assert wary.state.filter_server.all() == []


async def test_what_was_consumed_from_the_slave_is_known_to_the_master_when_it_returns(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as both:
        await both.start(1)
        for number in range(3):
            sent(await both.ask(0, send(b"%d" % number)))
        await both.ask(0, heartbeat())
        await both.ask(0, commit(1))
        await both.caught_up()
        await both.stop(0)
        assert texts(await both.ask(1, pull(1))) == [b"1", b"2"]
        await both.ask(1, commit(3))
        master = await both.start(0)
        assert master.state.offsets.committed(TOPIC, GROUP, 0) == 3


async def test_a_commit_on_the_slave_goes_to_a_master_that_is_there(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start(1)
        sent(await both.ask(0, send()))
        await both.ask(0, heartbeat())
        await both.caught_up()
        await both.ask(1, commit(1))
        master = both.brokers[0].state.offsets
        await until(lambda: master.committed(TOPIC, GROUP, 0) == 1, "the commit")


async def test_a_slave_sends_readers_without_news_back_to_a_live_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start(1)
        sent(await both.ask(0, send()))
        await both.caught_up()
        await both.ask(1, heartbeat())
        for offset in (1, 7):
            reply = await both.ask(1, pull(offset))
            assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert reply.ext["nextBeginOffset"] == str(offset)
            assert reply.ext["suggestWhichBrokerId"] == "0"


async def test_a_copied_directory_makes_a_slave_with_the_whole_history(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        for _ in range(20):
            sent(await both.ask(0, send(bytes(100_000))))
        crash(tmp_path / "broker-0", tmp_path / "broker-1")
        sent(await both.ask(0, send(b"later")))
        await both.start(1)
        await both.caught_up()
        lookup = both.brokers[1].state.store.lookup
        assert (lookup.min_offset(TOPIC, 0), lookup.max_offset(TOPIC, 0)) == (0, 21)


async def test_a_slave_with_more_than_the_master_is_refused_and_nothing_is_mixed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as both:
        for _ in range(5):
            sent(await both.ask(0, send()))
        crash(tmp_path / "broker-0", tmp_path / "broker-1")
        await both.stop(0)
        await both.start(0, store_path_root_dir=tmp_path / "another")
        sent(await both.ask(0, send(b"of another history")))
        before = (await both.start(1)).replication.max_offset
        await until(lambda: "not copies of one log" in caplog.text, "the complaint")
        assert both.end(1) == before


async def test_our_consumer_reads_from_the_slave_and_nothing_comes_again_from_the_master(
    tmp_path: Path,
) -> None:
    got: list[bytes] = []

    async def note(message: ReceivedMessage) -> None:
        got.append(message.body)

    def reader() -> PushConsumer:
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        made = PushConsumer(GROUP, nameservers=both.nameserver, consume_from_where=first)
        made.subscribe(TOPIC, "*", note)
        return made

    async with pair(tmp_path) as both:
        await both.start(1)
        for number in range(5):
            sent(await both.ask(0, send(b"%d" % number)))
        await both.caught_up()
        await both.stop(0)
        async with reader():
            await until(lambda: len(got) == 5, "what the slave serves")
        await both.start(0)
        sent(await both.ask(0, send(b"5")))
        async with reader():
            await until(lambda: len(got) >= 6, "what came after the master's return")
        assert sorted(got) == [b"%d" % number for number in range(6)]


async def test_our_consumer_goes_to_the_slave_when_its_master_goes(tmp_path: Path) -> None:
    got: list[bytes] = []

    async def note(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with pair(tmp_path) as both:
        slave = await both.start(1)
        sent(await both.ask(0, send(b"0")))
        await both.caught_up()
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        reader = PushConsumer(GROUP, nameservers=both.nameserver, consume_from_where=first)
        reader.subscribe(TOPIC, "*", note)
        async with reader:
            await until(lambda: got == [b"0"], "the first message")
            await both.stop(0)
            held = slave.state.held
            await until(lambda: held.statistics().waiting, "pulls that wait at the slave")


async def test_a_slave_that_fell_behind_the_masters_minimum_goes_on_with_its_oldest_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as both:
        await both.start(1)
        sent(await both.ask(0, send(b"old")))
        await both.caught_up()
        await both.stop(1)
        for _ in range(30):
            sent(await both.ask(0, send(bytes(100_000))))
        master = both.brokers[0].state.store
        await master.checkpoint()
        master.remove_files(2)
        assert master.statistics().min_offset == 2 << 20
        await both.start(1)
        await both.caught_up()
        assert "are lost: the master has no more" in caplog.text
        lookup = both.brokers[1].state.store.lookup
        assert lookup.max_offset(TOPIC, 0) == 31
        reply = await both.ask(1, pull(30))
        assert texts(reply) == [bytes(100_000)]
        end = both.end(0)
        await both.close()
        newest = max((tmp_path / "broker-0" / "commitlog").iterdir())
        other = tmp_path / "broker-1" / "commitlog" / newest.name
        size = end - int(newest.name)
        assert newest.read_bytes()[:size] == other.read_bytes()[:size]


async def test_a_peer_that_talks_rubbish_on_the_ha_port_costs_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path, ha_connections_max=3) as both:
        sent(await both.ask(0, send()))
        host, _, port = both.brokers[0].state.registration.ha_address.rpartition(":")
        for _ in range(20):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.read() == b""
            writer.close()
        lines = [line for line in caplog.messages if "on the HA port" in line]
        assert len(lines) == 1
        await both.start(1)
        await both.caught_up()


async def test_more_connections_than_allowed_are_closed_and_slaves_stay(tmp_path: Path) -> None:
    async with pair(tmp_path, ha_connections_max=2) as both:
        await both.start(1)
        sent(await both.ask(0, send()))
        await both.caught_up()
        host, _, port = both.brokers[0].state.registration.ha_address.rpartition(":")
        _, idle = await asyncio.open_connection(host, int(port))
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        writer.close()
        idle.close()
        sent(await both.ask(0, send()))
        await both.caught_up()


async def test_a_slave_that_an_operator_makes_a_master_delivers_what_waits_once(
    tmp_path: Path,
) -> None:
    """Delays of both kinds and an open transaction, over the end of their master."""
    async with pair(tmp_path) as both:
        await both.start(1)
        now_ms = SystemClock().now_ms()
        sent(await both.ask(0, send(b"gone", properties={"DELAY": "1"})))
        sent(await both.ask(0, send(b"level", properties={"DELAY": "2"})))
        timed = {"TIMER_DELIVER_MS": str(now_ms + 4_000), "UNIQ_KEY": "A1"}
        sent(await both.ask(0, send(b"timed", properties=timed)))
        half = {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": "A2"}
        sent(await both.ask(0, send(b"half", properties=half)))
        await until(lambda: both.brokers[0].state.delays.delivered == 1, "the first delivery")
        await both.caught_up()
        await both.stop(0)
        await both.stop(1)
        root = tmp_path / "broker-1"
        master = await both.start(0, store_path_root_dir=root, broker_role=BrokerRole.ASYNC_MASTER)
        assert len(master.state.transactions.halves) == 1
        lookup = master.state.store.lookup
        await until(lambda: lookup.max_offset(TOPIC, 0) == 3, "everything that waited")
        bodies = [lookup.by_queue_offset(TOPIC, 0, number) for number in range(3)]
        assert [record.body for record in bodies if record] == [b"gone", b"timed", b"level"]
