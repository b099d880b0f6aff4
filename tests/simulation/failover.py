"""A cluster to which everything happens, producers that do not stop, and what must be true."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from typing import TYPE_CHECKING, Any, Final

from tests.etcd_model import EtcdModel, Fault
from tests.stores import records_of

from firearrow.base.errors import FirearrowError
from firearrow.net.client import RemotingClient
from firearrow.testing.simulated_cluster import (
    SimulatedBroker,
    SimulatedCluster,
    SimulatedController,
)
from firearrow.testing.virtual_loop import Machine, VirtualLoop
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = logging.getLogger(__name__)

TOPIC: Final = "orders"
QUEUES: Final = 2
PRODUCERS: Final = 2
SEND_MS: Final = 4_000
TROUBLES: Final = 7
ETCD_HOST: Final = "127.0.0.7"
ETCD_PORT: Final = 2379
PEACE_S: Final = 120  # how long a healed cluster may take to be well again


class Failover:
    """One seed: a cluster, its troubles and its witnesses.

    Of even seeds with one controller; of odd ones with three, and an etcd that is a model but for
    what is sent to it.
    """

    def __init__(self, loop: VirtualLoop, folder: Path, seed: int) -> None:
        self.etcd: EtcdModel | None = None
        several: dict[str, Any] = {}
        if seed % 2:
            several = {
                "controllers": 3,
                "controller_settings": {"controller_etcd_endpoints": f"{ETCD_HOST}:{ETCD_PORT}"},
                "other_hosts": [ETCD_HOST],
            }
        self.cluster = SimulatedCluster(
            loop,
            folder,
            seed=seed,
            ha_send_heartbeat_interval=1_000,
            slave_timeout=2_000,
            **several,
        )
        if seed % 2:
            self.etcd = EtcdModel(self.cluster.clock)
        self.choose = self.cluster.choose
        self.seed = seed
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.sent = 0
        self.refused = 0
        self.history: list[str] = []
        self.is_over = False
        self.story_sum = 0  # a sum over everything that was told: equal for equal seeds

    def note(self, text: str) -> None:
        at_ms = self.cluster.clock.elapsed_ms()
        self.history.append(f"{at_ms:>9} {text}")
        self.story_sum = zlib.crc32(self.history[-1].encode(), self.story_sum)

    # --- the story --------------------------------------------------------------------------

    async def run(self) -> None:
        cluster = self.cluster
        if self.etcd is not None:
            machine = Machine(cluster.loop, ETCD_HOST)
            await machine.run(self.etcd.start(ETCD_HOST, ETCD_PORT), "etcd")
        await cluster.start()
        producers = [
            cluster.client.run(self.produce(number), f"producer-{number}")
            for number in range(PRODUCERS)
        ]
        await self.until(lambda: len(self.acknowledged) > 5, "the first messages are taken")
        for _ in range(TROUBLES):
            self.choose.choice(TROUBLE)(self)
            await asyncio.sleep(self.choose.uniform(0.2, 9.0))
            self.check()
            if self.choose.random() < 0.5:
                await self.relieve()
                await asyncio.sleep(self.choose.uniform(0.2, 12.0))
                self.check()
        await self.heal()
        self.is_over = True
        await asyncio.gather(*producers)
        await self.until(self.all_equal, "all histories are equal")
        self.check()
        self.check_everything()

    async def until(self, true: Callable[[], bool], what: str) -> None:
        for _ in range(PEACE_S * 10):
            if true():
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{what}: not within {PEACE_S} s. {self.state()}")

    async def heal(self) -> None:
        await self.relieve()
        self.note("healed")
        before = len(self.acknowledged)
        await self.until(
            lambda: len(self.acknowledged) > before + 5, "a healed cluster takes messages"
        )

    async def relieve(self) -> None:
        """Mend, wake and restart everything."""
        cluster = self.cluster
        cluster.network.mend()
        if cluster.names_machine.is_dead:
            await cluster.start_names()
        if self.etcd is not None:
            self.etcd.fault = lambda _: Fault.NONE
            self.etcd.release()
        for controller in cluster.controllers:
            if controller.machine.is_dead:
                await cluster.start_controller(controller)
        for machine in (cluster.names_machine, *(one.machine for one in cluster.controllers)):
            if machine.is_stopped:
                machine.go_on()
        for one in cluster.brokers:
            if one.machine.is_dead:
                await cluster.start_broker(one)
            elif one.machine.is_stopped:
                one.machine.go_on()
        self.note("relieved")

    # --- producers --------------------------------------------------------------------------

    async def produce(self, number: int) -> None:
        client = RemotingClient(self.cluster.clock)
        try:
            while not self.is_over:
                with contextlib.suppress(FirearrowError, OSError):
                    master = await self.find_master(client)
                    if master:
                        await self.send_while_it_works(client, master, number)
                await asyncio.sleep(self.choose.uniform(0.1, 0.5))
        finally:
            await client.close()

    async def send_while_it_works(self, client: RemotingClient, master: str, number: int) -> None:
        works = True
        while works and not self.is_over:
            works = await self.send(client, master, number)
            await self.cluster.clock.sleep(self.choose.randint(20, 500))

    async def find_master(self, client: RemotingClient) -> str | None:
        asking = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.GetRouteInfoRequest(topic=TBW))
        reply = await client.invoke(self.cluster.nameserver, asking, SEND_MS)
        if reply.code:
            return None
        route = java_json.decode(reply.body, bodies.TopicRouteData)
        return route.broker_datas[0].broker_addrs.get(0)

    async def send(self, client: RemotingClient, master: str, number: int) -> bool:
        self.sent += 1
        queue_id = self.choose.randrange(QUEUES)
        body = b"message %d of producer %d " % (self.sent, number)
        body += b"x" * self.choose.choice([0, 10, 500, 3_000])
        header = headers.SendMessageRequestV2(
            producer_group=f"producer-{number}",
            topic=TOPIC,
            default_topic=TBW,
            default_topic_queue_nums=QUEUES,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=self.cluster.clock.now_ms(),
            flag=0,
            properties="WAIT\x01true\x02",
        )
        asking = request(RequestCode.SEND_MESSAGE_V2, header, body)
        reply = await client.invoke(master, asking, SEND_MS)
        if reply.code:
            self.refused += 1
            return False
        told = headers.SendMessageReply.from_ext(reply.ext)
        place = (told.queue_id, told.queue_offset)
        assert place not in self.acknowledged, (
            f"two messages were acknowledged at {place}: {self.acknowledged[place][:40]!r} and "
            f"{body[:40]!r}"
        )
        self.acknowledged[place] = body
        self.note(f"{master} has {place}")
        return True

    # --- what must be true ------------------------------------------------------------------

    def check(self) -> None:
        """After every step."""
        self.one_master_of_each_epoch()
        leading = [one.host for one in self.cluster.controllers if self.leads(one)]
        assert len(leading) <= 1, f"several controllers believe that they lead: {leading}"
        master = self.cluster.master()
        if master is not None and not master.machine.is_stopped and self.leads_for_good(master):
            self.everything_acknowledged_is_on(master)

    def one_master_of_each_epoch(self) -> None:
        masters: dict[int, str] = {}
        for one in self.cluster.brokers:
            for epoch in one.reigns:
                other = masters.setdefault(epoch, one.host)
                assert other == one.host, f"{other} and {one.host} were masters of epoch {epoch}"

    def leads(self, one: SimulatedController) -> bool:
        return one.controller is not None and one.controller.leads

    def leads_for_good(self, one: SimulatedBroker) -> bool:
        """Whether nobody was elected after it: an old master need not have what came later."""
        newest = max((epoch for other in self.cluster.brokers for epoch in other.reigns), default=0)
        assert one.broker is not None
        assert one.broker.replicas is not None
        return one.broker.replicas.reigns == newest

    def everything_acknowledged_is_on(self, one: SimulatedBroker) -> None:
        found = self.read(one)
        for place, body in self.acknowledged.items():
            assert place in found, f"{one.host} lost {place}: {body[:40]!r}"
            assert found[place] == body, f"{one.host} has {found[place][:40]!r} at {place}"

    def read(self, one: SimulatedBroker) -> dict[tuple[int, int], bytes]:
        """Every message of a broker by its place; places are dense, or this fails."""
        assert one.broker is not None
        store = one.broker.state.store
        found: dict[tuple[int, int], bytes] = {}
        for queue_id in range(QUEUES):
            offset, stop = 0, store.lookup.max_offset(TOPIC, queue_id)
            while offset < stop:
                got = store.get(TOPIC, queue_id, offset, 32)
                if not got.count:
                    break  # derived, and not confirmed yet
                for record in records_of(got):
                    assert record.queue_offset == offset, (queue_id, offset, record.queue_offset)
                    found[queue_id, offset] = record.body
                    offset += 1
        return found

    def all_equal(self) -> bool:
        cluster = self.cluster
        if cluster.master() is None or not all(one.is_up for one in cluster.brokers):
            return False
        brokers = [one.broker for one in cluster.brokers if one.broker is not None]
        ends = {broker.replication.max_offset for broker in brokers}
        # Slaves hear of an epoch with its first byte.
        epochs = {
            tuple(
                entry
                for entry in broker.replication.epoch_entries()
                if entry.start_offset < broker.replication.max_offset
            )
            for broker in brokers
        }
        return len(ends) == 1 and len(epochs) == 1

    def check_everything(self) -> None:
        """At the end: three logs with the same bytes, and every acknowledged message in them."""
        logs = []
        for one in self.cluster.brokers:
            assert one.broker is not None
            replica = one.broker.state.store.replica
            pieces, offset = [], replica.min_offset
            while piece := replica.read(offset, 1 << 20):
                pieces.append(piece)
                offset += len(piece)
            logs.append(b"".join(pieces))
        assert logs[0] == logs[1] == logs[2]
        assert len(self.acknowledged) > 10, "hardly anything was sent"

    def state(self) -> str:
        told = []
        for one in self.cluster.brokers:
            if one.broker is None or one.broker.replicas is None:
                told.append(f"{one.host} is down")
                continue
            replication = one.broker.replication
            told.append(
                f"{one.host} reigns in {one.broker.replicas.reigns}, ends at "
                f"{replication.max_offset}, epochs {list(replication.epoch_entries())}"
            )
        return "; ".join(told)

    # --- trouble ----------------------------------------------------------------------------

    def somebody(self) -> SimulatedBroker:
        """The master more often than not."""
        master = self.cluster.master()
        if master is not None and self.choose.random() < 0.6:
            return master
        return self.choose.choice(self.cluster.brokers)

    def kill_a_broker(self) -> None:
        one = self.somebody()
        if not one.machine.is_dead:
            self.note(f"kill {one.host}")
            self.cluster.kill(one)

    def cut_power(self) -> None:
        one = self.somebody()
        if not one.machine.is_dead:
            self.note(f"power loss at {one.host}")
            self.cluster.cut_power(one)

    def stop_a_broker(self) -> None:
        one = self.somebody()
        self.note(f"stop {one.host}")
        one.machine.stop()

    def let_brokers_go_on(self) -> None:
        for one in self.cluster.brokers:
            if one.machine.is_stopped:
                self.note(f"{one.host} goes on")
                one.machine.go_on()

    def cut_off_a_broker(self) -> None:
        one = self.somebody()
        self.note(f"isolate {one.host}")
        self.cluster.isolate(one.host)

    def cut_one_way(self) -> None:
        one = self.somebody()
        other = self.choose.choice([host for host in self.cluster.hosts if host != one.host])
        source, target = self.choose.choice([(one.host, other), (other, one.host)])
        self.note(f"cut {source} to {target}")
        self.cluster.network.cut(source, target)

    def a_controller(self) -> SimulatedController:
        """The one that leads more often than not."""
        leading = [one for one in self.cluster.controllers if self.leads(one)]
        if leading and self.choose.random() < 0.7:
            return leading[0]
        return self.choose.choice(self.cluster.controllers)

    def cut_off_the_controllers(self) -> None:
        """From one broker, so that it is dead to the controllers and to nobody else."""
        one = self.somebody()
        self.note(f"cut {one.host} and the controllers")
        for controller in self.cluster.controllers:
            self.cluster.network.cut(one.host, controller.host)
            self.cluster.network.cut(controller.host, one.host)

    def cut_a_controller_off_etcd(self) -> None:
        """Or, if it is alone, stop it."""
        one = self.a_controller()
        if self.etcd is None:
            self.stop_a_controller()
            return
        self.note(f"cut {one.host} and etcd")
        self.cluster.network.cut(one.host, ETCD_HOST)
        self.cluster.network.cut(ETCD_HOST, one.host)

    def stop_a_controller(self) -> None:
        one = self.a_controller()
        self.note(f"stop {one.host}, a controller")
        one.machine.stop()

    def let_etcd_lose_answers(self) -> None:
        """Of what it has done, will do late, or will never do."""
        faults = [Fault.LOST, Fault.LATE, Fault.SILENCE, Fault.REFUSED, Fault.NONE, Fault.NONE]
        if self.etcd is not None:
            self.note("etcd loses answers")
            self.etcd.fault = lambda _: self.choose.choice(faults)

    def slow_down(self) -> None:
        host = self.choose.choice(self.cluster.hosts)
        self.note(f"slow {host}")
        self.cluster.network.slow.add(host)

    def kill_a_controller(self) -> None:
        one = self.a_controller()
        if not one.machine.is_dead:
            self.note(f"kill {one.host}, a controller")
            self.cluster.kill_controller(one)

    def kill_master_and_controller(self) -> None:
        """apache/rocketmq#7689: both die together, come back together, and writes come at once."""
        master = self.cluster.master()
        self.kill_a_controller()
        if master is not None and not master.machine.is_dead:
            self.note(f"power loss at {master.host}, the master")
            self.cluster.cut_power(master)

    def kill_the_name_server(self) -> None:
        if not self.cluster.names_machine.is_dead:
            self.note("kill the name server")
            self.cluster.kill_names()

    def restart_everybody(self) -> None:
        self.note("power loss everywhere")
        for one in self.cluster.brokers:
            if not one.machine.is_dead:
                self.cluster.cut_power(one)


TBW: Final = "TBW102"  # the topic whose settings new topics get
TROUBLE: Final[list[Callable[[Failover], None]]] = [
    Failover.kill_a_broker,
    Failover.cut_power,
    Failover.stop_a_broker,
    Failover.let_brokers_go_on,
    Failover.cut_off_a_broker,
    Failover.cut_one_way,
    Failover.cut_off_the_controllers,
    Failover.cut_a_controller_off_etcd,
    Failover.stop_a_controller,
    Failover.let_etcd_lose_answers,
    Failover.slow_down,
    Failover.kill_a_controller,
    Failover.kill_master_and_controller,
    Failover.kill_the_name_server,
    Failover.restart_everybody,
]


def run_seed(seed: int, folder: Path) -> Failover:
    """One story from its seed."""
    loop = VirtualLoop()
    failover: list[Failover] = []

    async def story() -> None:
        failover.append(Failover(loop, folder, seed))
        await failover[0].run()

    try:
        loop.run_story(story())
    except BaseException:
        told = "\n".join(failover[0].history[-60:]) if failover else ""
        log.exception("seed %d, the end of its story:\n%s", seed, told)
        raise
    finally:
        for one in failover:
            one.cluster.close()
    return failover[0]
