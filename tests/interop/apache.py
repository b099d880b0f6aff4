"""The servers and the admin tool of a test: our name server or Apache's, brokers, mqadmin."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .cache import JAVA_SOURCES, apache_jars, java_programs, require_tool
from .processes import (
    Bench,
    PeerError,
    PeerProcess,
    wait_until,
)
from .rawclient import SUCCESS, TOPIC_NOT_EXIST, NameServerClient, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NAMESERVER_SWITCH: Final = "FIREARROW_INTEROP_NAMESERVER"
RELEASE_5: Final = "5.3.3"
RELEASE_4: Final = "4.9.8"

START_TIMEOUT_S: Final = 60.0

# A 5.3.3 broker registers while it starts only if its scan for reachable name servers happens to be
# done by then; otherwise ten seconds later.
REGISTER_TIMEOUT_S: Final = 40.0

# For what follows a request at once, but not before its answer.
SOON_S: Final = 10.0
COMMAND_TIMEOUT_S: Final = 60.0

MEBIBYTE: Final = 1 << 20


def java_command(
    main_class: str,
    *,
    release: str = RELEASE_5,
    work_dir: Path,
    heap: Sequence[str] = ("-Xmx128m",),
    properties: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> list[str]:
    """The command line of a JVM with the jars of one release and our own programs.

    Args:
        main_class: What to run.
        release: Which RocketMQ release to run it with.
        work_dir: Takes the logs, which RocketMQ would otherwise write to the user's home.
        heap: Memory options.
        properties: System properties.
        arguments: Given to the program.
    """
    settings = {
        "user.home": str(work_dir),
        "rocketmq.client.logRoot": str(work_dir),
        "rmq.logback.configurationFile": str(JAVA_SOURCES / "rmq.logback.xml"),
        "logback.configurationFile": str(JAVA_SOURCES / "logback.xml"),
        "interop.log": str(work_dir / "rocketmq.log"),
        # A consumer looks every twenty seconds whether it should read other queues; a test that
        # starts one beside a new topic would wait for that.
        "rocketmq.client.rebalance.waitInterval": "1000",
        **(properties or {}),
    }
    return [
        require_tool("java"),
        # These processes live for seconds: a cheap collector and compiler suit them.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *heap,
        *(f"-D{name}={value}" for name, value in settings.items()),
        "-cp",
        f"{java_programs(release)}:{apache_jars(release)}/*",
        main_class,
        *arguments,
    ]


def write_properties(path: Path, properties: Mapping[str, object]) -> Path:
    """Write a RocketMQ `.properties` file."""
    lines = [f"{name}={value}" for name, value in properties.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def nameserver_is_apache() -> bool:
    """Say whether the tests run against Apache's own name server, to check what they expect."""
    choice = os.environ.get(NAMESERVER_SWITCH, "firearrow")
    if choice not in {"firearrow", "apache"}:
        raise PeerError(f"{NAMESERVER_SWITCH} is {choice!r}; it can be 'firearrow' or 'apache'")
    return choice == "apache"


@dataclass(frozen=True, slots=True)
class NameServer:
    """A running name server."""

    process: PeerProcess
    port: int

    @property
    def address(self) -> str:
        """What clients are given."""
        return f"127.0.0.1:{self.port}"

    def client(self) -> NameServerClient:
        """A bare client of it, for what mqadmin cannot show."""
        return NameServerClient(self.port)

    def brokers(self) -> dict[str, dict[int, str]]:
        """The registered brokers: name, then id, then address."""
        return self.client().brokers()

    def wait_for_broker(self, broker: Broker) -> None:
        """Wait until a broker is registered."""
        wait_until(
            lambda: self.brokers().get(broker.name, {}).get(broker.broker_id) == broker.address,
            timeout_s=REGISTER_TIMEOUT_S,
            what=lambda: f"{broker.name} to register, only {self.brokers()} did",
        )

    def wait_for_no_broker(self, broker: Broker, *, timeout_s: float) -> None:
        """Wait until a broker is no longer listed."""
        wait_until(
            lambda: broker.name not in self.brokers(),
            timeout_s=timeout_s,
            what=lambda: f"{broker.name} to disappear, the name server lists {self.brokers()}",
        )


def start_name_server(
    bench: Bench, *, scan_ms: int = 5000, expired_ms: int | None = None
) -> NameServer:
    """Start our name server, or Apache's if the switch says so.

    Args:
        bench: Owns the process.
        scan_ms: How often it looks for brokers that went silent.
        expired_ms: Silence after which a broker that asked for no limit of its own is dropped. Only
            ours can change this; Apache's has two minutes in its code.
    """
    folder = bench.new_folder("nameserver")
    properties: dict[str, object] = {
        "scanNotActiveBrokerInterval": scan_ms,
        "kvConfigPath": folder / "kvConfig.json",
    }
    if nameserver_is_apache():
        port = bench.reserve_ports()
        properties |= {"listenPort": port, "configStorePath": folder / "namesrv.stored.properties"}
        command = java_command(
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            work_dir=folder,
            arguments=["-c", str(write_properties(folder / "namesrv.properties", properties))],
        )
        process = bench.start(
            "nameserver", command, work_dir=folder, environment={"ROCKETMQ_HOME": str(folder)}
        )
        process.wait_for_line("The Name Server boot success", timeout_s=START_TIMEOUT_S)
        return NameServer(process, port)
    if expired_ms is not None:
        properties["brokerExpiredMillis"] = expired_ms
    file = write_properties(folder / "namesrv.properties", properties)
    command = [sys.executable, "-m", "firearrow", "nameserver", "--port", "0", "-c", str(file)]
    process = bench.start("nameserver", command, work_dir=folder)
    ready = process.wait_for_line(
        r"name server ready on 127\.0\.0\.1:(\d+)", timeout_s=START_TIMEOUT_S
    )
    return NameServer(process, int(ready[1]))


@dataclass(frozen=True, slots=True)
class Broker:
    """A running Apache broker; `start_broker` makes it."""

    name: str
    cluster: str
    port: int
    process: PeerProcess
    broker_id: int = 0

    @property
    def address(self) -> str:
        """What it registers and clients connect to."""
        return f"127.0.0.1:{self.port}"

    def wait_until_started(self) -> None:
        """Wait until it listens; its registration may follow later."""
        self.process.wait_for_line("boot success", timeout_s=START_TIMEOUT_S)


def start_broker(
    bench: Bench,
    *nameservers: NameServer,
    name: str,
    cluster: str,
    header_type: str = "JSON",
    port: int | None = None,
    extra: Mapping[str, object] | None = None,
) -> Broker:
    """Start an unmodified Apache broker without waiting for it, so that several start at once.

    Args:
        bench: Owns the process.
        nameservers: Where it registers.
        name: Its broker name.
        cluster: Its cluster name.
        header_type: How it writes the headers of requests and answers: JSON or ROCKETMQ.
        port: One that was reserved before, for a broker whose address is in its store.
        extra: More settings.
    """
    folder = bench.new_folder(name)
    port = port or bench.reserve_ports()
    properties: dict[str, object] = {
        "brokerClusterName": cluster,
        "brokerName": name,
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": ";".join(each.address for each in nameservers),
        "autoCreateTopicEnable": "true",
        "storePathRootDir": folder / "store",
        "storePathCommitLog": folder / "store" / "commitlog",
        "mappedFileSizeCommitLog": 16 * MEBIBYTE,
        # A full or old disk of the machine must not make the broker refuse or delete messages.
        "diskMaxUsedSpaceRatio": 95,
        "fileReservedTime": 9999,
        **(extra or {}),
    }
    command = java_command(
        "org.apache.rocketmq.broker.BrokerStartup",
        work_dir=folder,
        heap=("-Xms256m", "-Xmx384m", "-XX:MaxDirectMemorySize=256m"),
        properties={"rocketmq.serialize.type": header_type},
        arguments=["-c", str(write_properties(folder / "broker.properties", properties))],
    )
    process = bench.start(
        name, command, work_dir=folder, environment={"ROCKETMQ_HOME": str(folder)}
    )
    return Broker(name=name, cluster=cluster, port=port, process=process)


@dataclass(frozen=True, slots=True)
class AdminAnswer:
    """What one mqadmin command printed. Its exit code says nothing: it is 0 after most failures."""

    command: str
    out: str
    err: str

    def json_body(self) -> object:
        """The answer of a command that prints JSON."""
        return parse_json(self.out)

    def rows(self) -> list[list[str]]:
        """The words of each line that is no heading."""
        lines = [line for line in self.out.splitlines() if line and not line.startswith("#")]
        return [line.split() for line in lines]


@dataclass(slots=True)
class Mqadmin:
    """mqadmin, run many times in one JVM.

    Attributes:
        bench: Owns the JVM.
        nameserver: Given to each command with -n.
        release: The RocketMQ release it comes from.
    """

    bench: Bench
    nameserver: NameServer
    release: str = RELEASE_5
    _shell: PeerProcess | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)

    def try_run(self, *arguments: str) -> AdminAnswer:
        """Run one command, whatever comes of it."""
        shell = self._running_shell()
        self._count += 1
        words = [str(self._count), *arguments, "-n", self.nameserver.address]
        shell.send_line("\x1f".join(words))
        line = shell.wait_for_line(rf'^\{{"id":{self._count},.*\}}$', timeout_s=COMMAND_TIMEOUT_S)
        answer = json.loads(line[0])
        return AdminAnswer(" ".join(arguments), answer["out"], answer["err"])

    def run(self, *arguments: str) -> AdminAnswer:
        """Run one command that must not complain.

        Raises:
            PeerError: If it printed an exception.
        """
        answer = self.try_run(*arguments)
        if "Exception" in answer.err:
            raise PeerError(f"mqadmin {answer.command} failed\n{answer.out}\n{answer.err}")
        return answer

    def _running_shell(self) -> PeerProcess:
        # A command with a wrong option ends its JVM; the next one starts another.
        if self._shell is None or self._shell.exit_code is not None:
            folder = self.bench.new_folder(f"mqadmin-{self.release}")
            # Release 4 does nothing at all without this file.
            conf = folder / "conf"
            conf.mkdir()
            shutil.copy(JAVA_SOURCES / "logback.xml", conf / "logback_tools.xml")
            command = java_command(
                "firearrow.interop.MqadminShell", release=self.release, work_dir=folder
            )
            self._shell = self.bench.start(
                f"mqadmin-{self.release}",
                command,
                work_dir=folder,
                environment={"ROCKETMQ_HOME": str(folder)},
            )
            self._shell.wait_for_line("mqadmin shell ready", timeout_s=START_TIMEOUT_S)
        return self._shell


@dataclass(frozen=True, slots=True)
class Cluster:
    """A name server with two brokers of one cluster, and the admin tool.

    Attributes:
        bench: Owns the processes.
        nameserver: The name server under test.
        json_broker: Writes JSON headers, the only kind that Go and Node clients understand.
        binary_broker: Writes RocketMQ's binary headers.
        admin: mqadmin of the same release as the brokers.
    """

    bench: Bench
    nameserver: NameServer
    json_broker: Broker
    binary_broker: Broker
    admin: Mqadmin

    @property
    def name(self) -> str:
        """The cluster name."""
        return self.json_broker.cluster

    @property
    def brokers(self) -> tuple[Broker, Broker]:
        """Both brokers."""
        return self.json_broker, self.binary_broker

    def broker_names(self) -> list[str]:
        """The names of both brokers, sorted."""
        return sorted(broker.name for broker in self.brokers)

    def queues(self, topic: str) -> dict[str, dict[str, Any]]:
        """The queue data of a topic by broker name; empty if there is no route."""
        answer = self.nameserver.client().route(topic)
        if answer.code == TOPIC_NOT_EXIST:
            return {}
        assert answer.code == SUCCESS, answer
        return {data["brokerName"]: data for data in answer.body["queueDatas"]}

    def permissions(self, topic: str) -> dict[str, int]:
        """The permission of a topic by broker name."""
        return {name: data["perm"] for name, data in self.queues(topic).items()}

    def create_topic(self, topic: str, *where: Broker, options: Sequence[str] = ()) -> None:
        """Create a topic on some brokers and wait until the name server knows it from all."""
        for broker in where:
            self.admin.run("updateTopic", "-t", topic, "-b", broker.address, *options)
        wait_until(
            lambda: set(self.queues(topic)) == {broker.name for broker in where},
            timeout_s=SOON_S,
            what=lambda: f"route of {topic}, which is {self.nameserver.client().route(topic)}",
        )


def start_cluster(bench: Bench, *, name: str) -> Cluster:
    """Start a name server and two brokers, and wait until both are registered."""
    nameserver = start_name_server(bench)
    plain = start_broker(bench, nameserver, name=f"{name}-json", cluster=name)
    binary = start_broker(
        bench, nameserver, name=f"{name}-binary", cluster=name, header_type="ROCKETMQ"
    )
    for broker in (plain, binary):
        broker.wait_until_started()
    for broker in (plain, binary):
        nameserver.wait_for_broker(broker)
    return Cluster(bench, nameserver, plain, binary, Mqadmin(bench, nameserver))
