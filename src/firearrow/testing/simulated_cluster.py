"""A name server, controllers and brokers, all real, on machines that are not.

    loop = VirtualLoop()
    cluster = SimulatedCluster(loop, folder, seed=7)
    loop.run_story(story(cluster))

Each broker has a `LyingDisk`, and a host of its own on a `MemoryNetwork`; everything that goes
wrong comes from the seed, and goes wrong again in the same way with the same seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.controller.config import ControllerConfig
from firearrow.controller.server import Controller
from firearrow.nameserver.config import NameServerConfig
from firearrow.nameserver.server import NameServer
from firearrow.store.config import FlushDiskType
from firearrow.testing.lying_disk import LyingDisk
from firearrow.testing.memory_network import MemoryNetwork
from firearrow.testing.virtual_loop import LoopClock, Machine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from firearrow.testing.virtual_loop import VirtualLoop

NAMES_HOST: Final = "127.0.0.8"
CONTROLLER_HOST: Final = "127.0.0.9"  # of the first; others have 127.0.0.30 and so on
CLIENT_HOST: Final = "127.0.0.10"
NAMES_PORT: Final = 9876
CONTROLLER_PORT: Final = 9878
BROKER_PORT: Final = 10911
BROKER_NAME: Final = "broker-a"

SMALL: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 20 * 500,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
    "access_message_in_memory_max_ratio": 100,
    "disk_free_bytes_min": 0,
    "timer_wheel_enable": False,
    "flush_disk_type": FlushDiskType.SYNC_FLUSH,
}


@dataclass(slots=True)
class SimulatedController:
    """One controller through all its lives."""

    host: str
    machine: Machine
    controller: Controller | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{CONTROLLER_PORT}"


@dataclass(slots=True)
class SimulatedBroker:
    """One replica through all its lives."""

    host: str
    disk: LyingDisk
    folder: Path
    machine: Machine
    broker: Broker | None = None
    is_started: bool = False
    reigns: list[int] = field(default_factory=list)  # epochs that it was master of

    @property
    def address(self) -> str:
        return f"{self.host}:{BROKER_PORT}"

    @property
    def is_up(self) -> bool:
        return self.is_started and not self.machine.is_dead


class SimulatedCluster:
    """Everything that runs, and what can be done to it."""

    def __init__(
        self,
        loop: VirtualLoop,
        folder: Path,
        *,
        seed: int,
        brokers: int = 3,
        controllers: int = 1,
        controller_settings: dict[str, Any] | None = None,
        other_hosts: Sequence[str] = (),  # of the caller's own machines, to be cut off as well
        **settings: Any,  # noqa: ANN401 - of brokers, in Python's spelling
    ) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self.choose = random.Random(seed)
        self.network = MemoryNetwork(loop, random.Random(seed + 1))
        self.settings = settings
        self.folder = folder
        self.client = Machine(loop, CLIENT_HOST)
        self.names_machine = Machine(loop, NAMES_HOST)
        self.controller_settings = controller_settings or {}
        self.controllers = [
            SimulatedController(host, Machine(loop, host))
            for host in [CONTROLLER_HOST, *(f"127.0.0.{30 + n}" for n in range(controllers - 1))]
        ]
        self.other_hosts = list(other_hosts)
        self.brokers = [self._machine(n, seed) for n in range(brokers)]

    def _machine(self, number: int, seed: int) -> SimulatedBroker:
        host = f"127.0.0.{11 + number}"
        folder = self.folder / f"broker-{number}"
        disk = LyingDisk(folder, seed=seed * 100 + number, now_ms=self.clock.now_ms)
        return SimulatedBroker(host, disk, folder, Machine(self.loop, host))

    @property
    def nameserver(self) -> str:
        return f"{NAMES_HOST}:{NAMES_PORT}"

    @property
    def hosts(self) -> list[str]:
        controllers = [one.host for one in self.controllers]
        others = [NAMES_HOST, CLIENT_HOST, *self.other_hosts]
        return [*others, *controllers, *(one.host for one in self.brokers)]

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.start_names()
        for controller in self.controllers:
            await self.start_controller(controller)
        for one in self.brokers:
            await self.start_broker(one)

    async def start_names(self) -> None:
        self.names_machine = Machine(self.loop, NAMES_HOST)
        config = NameServerConfig(
            bind_address=NAMES_HOST,
            listen_port=NAMES_PORT,
            kv_config_path=self.folder / "kvConfig.json",
            config_store_path=self.folder / "namesrv.properties",
        )
        await self.names_machine.run(NameServer(config, self.clock).start(), "start")

    async def start_controller(self, one: SimulatedController) -> None:
        one.machine = Machine(self.loop, one.host)
        given: dict[str, Any] = {
            "bind_address": one.host,
            "listen_port": CONTROLLER_PORT,
            "controller_d_leger_self_id": one.host,
            "controller_store_path": self.folder / f"controller-{one.host}",
            "config_store_path": self.folder / f"controller-{one.host}.properties",
        }
        config = ControllerConfig(**(given | self.controller_settings))

        async def live() -> None:
            one.controller = Controller(config, self.clock)
            await one.controller.start()

        await one.machine.run(live(), "start")

    async def start_broker(self, one: SimulatedBroker) -> None:
        """A life begins; the disk is what the last one left."""
        one.machine = Machine(self.loop, one.host)
        given = SMALL | {
            "store_path_root_dir": one.folder,
            "bind_address": one.host,
            "listen_port": BROKER_PORT,
            "broker_name": BROKER_NAME,
            "namesrv_addr": self.nameserver,
            "controller_addr": ";".join(one.address for one in self.controllers),
            "enable_controller_mode": True,
        }
        config = BrokerConfig(**(given | self.settings))

        async def live() -> None:
            broker = WatchedBroker(config, self.clock, disk=one.disk, reigns=one.reigns)
            one.broker = broker
            await broker.start()
            one.is_started = True

        await one.machine.run(live(), "start")

    # --- death ------------------------------------------------------------------------------

    def kill(self, one: SimulatedBroker) -> None:
        """The process is killed: the system hangs up for it, and keeps its unsaved pages."""
        self._end(one.machine)
        self._bury(one)
        one.disk = one.disk.after_process_crash()

    def cut_power(self, one: SimulatedBroker) -> None:
        """The machine loses its power: silence, and a disk that remembers what it likes."""
        one.machine.kill()
        self.network.fall_silent(one.machine)
        self._bury(one)
        one.disk = one.disk.after_power_loss()

    def _bury(self, one: SimulatedBroker) -> None:
        """What the system does for the dead: it closes their files."""
        if one.broker is not None:
            one.broker.state.store.release_lock()
            one.broker, one.is_started = None, False

    def close(self) -> None:
        """The end of everything."""
        for one in self.brokers:
            self._bury(one)

    def kill_controller(self, one: SimulatedController) -> None:
        one.controller = None
        self._end(one.machine)

    def kill_names(self) -> None:
        self._end(self.names_machine)

    def _end(self, machine: Machine) -> None:
        machine.kill()
        self.network.hang_up(machine)

    def isolate(self, host: str) -> None:
        """Cut every cable of a host, in both directions."""
        for other in self.hosts:
            if other != host:
                self.network.cut(host, other)
                self.network.cut(other, host)

    def master(self) -> SimulatedBroker | None:
        """A broker that takes messages, the one of the newest epoch if there are several."""
        reigning = [
            (one.broker.replicas.reigns, number)
            for number, one in enumerate(self.brokers)
            if one.broker is not None
            and one.is_up
            and one.broker.replicas is not None
            and one.broker.replicas.reigns
        ]
        return self.brokers[max(reigning)[1]] if reigning else None


class WatchedBroker(Broker):
    """A broker that notes of which epochs it was master."""

    def __init__(
        self, config: BrokerConfig, clock: LoopClock, *, disk: LyingDisk, reigns: list[int]
    ) -> None:
        super().__init__(config, clock, disk=disk)
        self._reigns = reigns

    async def become_master(self, epoch: int) -> None:
        self._reigns.append(epoch)
        await super().become_master(epoch)
