"""Roles that change at run time, with epochs: one history, whoever is the master."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker_requests import TOPIC, pull, send, sent, texts
from tests.support import PATIENCE_S, SMALL_BROKER, running_nameserver, until

from firearrow.base.runtime import SystemClock
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.model.errors import ResponseCode, ServerFailed
from firearrow.net.client import RemotingClient
from firearrow.replication.epochs import EpochEntry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from firearrow.wire.command import Command


class Group:
    """Replicas 1, 2, … of one broker name, whose roles the test decides."""

    def __init__(self, folder: Path, nameserver: str, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.nameserver = nameserver
        self.settings = settings
        self.brokers: dict[int, Broker] = {}
        self.client = RemotingClient(SystemClock())

    async def start(self, number: int) -> Broker:
        given = SMALL_BROKER | {
            "store_path_root_dir": self.folder / f"replica-{number}",
            "namesrv_addr": self.nameserver,
            "broker_id": number,
            "enable_controller_mode": True,
            "slave_sync_interval": 100,
            "sync_broker_metadata_period": 100,
        }
        config = BrokerConfig(**(given | self.settings))
        broker = Broker(config, SystemClock(), asks_controller=False)
        await broker.start()
        self.brokers[number] = broker
        return broker

    async def stop(self, number: int) -> None:
        await self.brokers.pop(number).stop()

    async def lead(self, number: int, epoch: int, *followers: int) -> None:
        """Make one the master of an epoch and others its slaves, in sync with it."""
        master = self.brokers[number]
        await master.become_master(epoch)
        for other in followers:
            await self.follow(other, number, epoch)
        await until(lambda: len(master.replication.followers()) == len(followers), "all slaves")
        master.replication.set_sync_state_set({number, *followers})

    async def follow(self, number: int, master: int, epoch: int) -> None:
        registration = self.brokers[master].state.registration
        await self.brokers[number].become_slave(
            registration.address, registration.ha_address, epoch
        )

    async def ask(self, number: int, command: Command) -> Command:
        address = self.brokers[number].address
        return await self.client.invoke(address, command, PATIENCE_S * 1_000)

    def ends(self) -> set[int]:
        return {broker.replication.max_offset for broker in self.brokers.values()}

    async def equal(self) -> None:
        await until(lambda: len(self.ends()) == 1, "equal ends")

    async def close(self) -> None:
        for number in list(self.brokers):
            await self.stop(number)
        await self.client.close()

    def log_of(self, number: int, size: int) -> bytes:
        folder = self.folder / f"replica-{number}" / "commitlog"
        return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))[:size]


@asynccontextmanager
async def replicas(folder: Path, *numbers: int, **settings: Any) -> AsyncIterator[Group]:
    async with running_nameserver() as names:
        group = Group(folder, names.server.address, settings)
        try:
            for number in numbers:
                await group.start(number)
            yield group
        finally:
            await group.close()


async def test_a_broker_without_a_role_takes_nothing(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as group:
        assert (await group.ask(1, send())).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_slave_that_becomes_master_goes_on_where_the_queues_end(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, 2) as group:
        await group.lead(1, 1, 2)
        for number in range(3):
            assert sent(await group.ask(1, send(b"%d" % number))).queue_offset == number
        await group.stop(1)
        await group.lead(2, 2)
        assert sent(await group.ask(2, send(b"3"))).queue_offset == 3
        reply = await group.ask(2, pull())
        assert texts(reply) == [b"0", b"1", b"2", b"3"]
        entries = group.brokers[2].replication.epoch_entries()
        assert [entry.epoch for entry in entries] == [1, 2]


async def test_an_old_master_that_returns_gives_up_what_nobody_else_has(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, 2, slave_timeout=200) as group:
        await group.lead(1, 1, 2)
        for number in range(5):
            sent(await group.ask(1, send(b"%d" % number)))
        await group.equal()
        shared = group.ends().pop()
        await group.brokers[2].become_slave("", "", 1)  # cut off from its master
        lost = await group.ask(1, send(b"never acknowledged"))
        assert lost.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert group.brokers[1].replication.max_offset > shared
        assert group.brokers[1].replication.confirm_offset == shared

        await group.lead(2, 2, 1)
        assert sent(await group.ask(2, send(b"5"))).queue_offset == 5
        await group.equal()
        end = group.ends().pop()
        assert group.brokers[1].replication.epoch_entries() == (
            EpochEntry(1, 0),
            EpochEntry(2, shared),
        )
        old = group.brokers[1].state.store
        await until(lambda: old.lookup.max_offset(TOPIC, 0) == 6, "the queue of the old master")
        last = old.lookup.by_queue_offset(TOPIC, 0, 5)
        assert last is not None
        assert last.body == b"5"
        await group.close()
        assert group.log_of(1, end) == group.log_of(2, end)


async def test_a_restart_between_roles_keeps_epochs_and_messages(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, 2) as group:
        await group.lead(1, 1, 2)
        sent(await group.ask(1, send(b"one")))
        await group.equal()
        await group.stop(1)
        await group.stop(2)
        await group.start(1)
        await group.start(2)
        await group.lead(2, 3, 1)
        sent(await group.ask(2, send(b"two")))
        await group.equal()
        for number in (1, 2):
            entries = group.brokers[number].replication.epoch_entries()
            assert [entry.epoch for entry in entries] == [1, 3]


async def test_writes_that_wait_get_an_error_when_their_master_steps_down(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, 2, slave_timeout=60_000) as group:
        await group.lead(1, 1, 2)
        sent(await group.ask(1, send(b"first")))
        await group.brokers[2].become_slave("", "", 1)
        waiting = asyncio.create_task(group.ask(1, send(b"second")))
        await until(lambda: group.brokers[1].replication.progress.waiting, "the wait")
        stepping = asyncio.create_task(group.brokers[1].become_slave("", "", 2))
        assert (await waiting).code == ResponseCode.SERVICE_NOT_AVAILABLE
        await stepping
        assert (await group.ask(1, send())).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_master_of_an_epoch_that_is_over_is_refused(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, 2) as group:
        await group.lead(1, 1, 2)
        await group.lead(2, 5, 1)
        sent(await group.ask(2, send()))
        await group.equal()
        with pytest.raises(ServerFailed, match="epoch 4 is over"):
            await group.brokers[1].become_master(4)
        assert (await group.ask(1, send())).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_whoever_owns_the_set_hears_of_slaves_that_catch_up_and_fall_out(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path, 1, 2) as group:
        heard: list[tuple[int, bool]] = []
        await group.brokers[1].become_master(1)
        progress = group.brokers[1].replication.progress
        progress.on_sync_change = lambda number, is_in: heard.append((number, is_in))
        sent(await group.ask(1, send()))
        await group.follow(2, 1, 1)
        await until(lambda: (2, True) in heard, "the slave in sync")
        group.brokers[1].replication.set_sync_state_set({1, 2})
        await group.stop(2)
        await until(lambda: (2, False) in heard, "the slave out of sync")


async def test_a_master_that_stops_reports_no_slave_as_fallen_out(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, 2) as group:
        heard: list[tuple[int, bool]] = []
        await group.lead(1, 1, 2)
        progress = group.brokers[1].replication.progress
        progress.on_sync_change = lambda number, is_in: heard.append((number, is_in))
        await group.brokers[1].become_slave("", "", 2)
        await group.stop(1)
        assert heard == []


async def test_roles_may_change_again_and_again_without_losing_or_doubling_anything(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path, 1, 2, 3) as group:
        count = 0
        for epoch in range(1, 8):
            master = 1 + epoch % 3
            others = [number for number in (1, 2, 3) if number != master]
            await group.lead(master, epoch, *others)
            for _ in range(5):
                body = b"%d" % count
                assert sent(await group.ask(master, send(body))).queue_offset == count
                count += 1
        await group.equal()
        reply = await group.ask(master, pull(count=64))
        found = texts(reply)
        assert len(found) >= 32  # as many as one pull may have
        assert found == [b"%d" % number for number in range(len(found))]
        end = group.ends().pop()
        await group.close()
        assert group.log_of(1, end) == group.log_of(2, end) == group.log_of(3, end)
