"""What the tests of store directories do with them, in four acts that run once for all tests.

Four directories, two that our store begins and two that Apache begins, one of each stopped cleanly
and one killed, pass through the same acts side by side, since a broker takes seconds to start and
to stop:

    act   ours-clean, ours-killed              apache-clean, apache-killed
    1     our store writes                     -
    2     Apache opens, a client reads, sends  Apache is filled by a client
    3     our store opens and appends          our store opens and appends
    4     Apache opens, a client reads, sends  Apache opens, a client reads, sends

Whoever is the last to write in acts 1 and 2 stops cleanly or is killed, as the name says. In act 3
our store also removes the oldest file of ours-clean; ours-killed is left out of act 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from firearrow.hot import StoreMessage
from firearrow.model.message import host_bytes
from firearrow.wire.bodies.offsets import ConsumerOffsetWrapper

from .apache import REGISTER_TIMEOUT_S, Broker, start_name_server
from .processes import Bench, PeerProcess, wait_until
from .stores import (
    SMALL,
    USUAL,
    Facts,
    JavaView,
    Place,
    Queue,
    StoreClient,
    Survey,
    by_place,
    ends_of,
    queue_words,
    start_broker_on,
    start_writer,
    stop_cleanly,
    survey,
    told_messages,
    write_config,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

OURS: Final = ("ours-clean", "ours-killed")
APACHES: Final = ("apache-clean", "apache-killed")
CURTAILED: Final = "ours-clean"  # loses its oldest file of the log in act 3

GROUP: Final = "store-group"
SENDS_PER_QUEUE: Final = 3  # one by one, and as many again in a batch
APPENDS_PER_QUEUE: Final = 2
TAIL_MESSAGES: Final = 150  # acknowledged before a kill
WRITE_TIMEOUT_S: Final = 60.0
KILL_TIMEOUT_S: Final = 30.0
PERSIST_TIMEOUT_S: Final = 30.0  # a broker writes offsets for the first time after ten seconds

# What `StoreFilling.java` fills, with the number of queues.
FILLED: Final = {"plain": 4, "batch": 1, "large": 1, "packed": 1, "delay": 1, "half": 1, "tail": 4}
SYSTEM_QUEUES: Final = (
    ("SCHEDULE_TOPIC_XXXX", 0),
    ("SCHEDULE_TOPIC_XXXX", 17),
    ("RMQ_SYS_TRANS_HALF_TOPIC", 0),
    ("rmq_sys_wheel_timer", 0),
)

Question = tuple[str, str, str]  # kind, topic, key or id


@dataclass(slots=True)
class Look:
    """What the Java client found out from a broker on a directory, and what it sent then."""

    view: JavaView
    found: list[tuple[Question, list[str]]]  # offset ids, by key, unique key and id
    committed: list[int]  # of the queues of the plain topic
    sent: list[dict[str, Any]] = field(default_factory=list)  # and acknowledged


@dataclass(slots=True)
class Directory:
    """One store directory, and what became known about it from act to act."""

    name: str
    root: Path
    port: int  # of its broker: it is in its messages
    sizes: Mapping[str, int]
    told: list[Facts] = field(default_factory=list)  # by our writer, when it was safe on disk
    looks: list[Look] = field(default_factory=list)
    surveys: list[Survey] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        """Of its topics: all brokers of these acts have one name server."""
        return f"{self.name}-"

    @property
    def told_file(self) -> Path:
        """Where a writer that may be killed says what is safe."""
        return self.root.parent / "told.jsonl"

    def owns(self, queue: Queue) -> bool:
        """Whether this is a queue that anybody may send to."""
        return queue[0].startswith(self.prefix)

    def filled_queues(self) -> list[Queue]:
        """The queues that a Java client fills, or has filled by what it sends."""
        own = [
            (self.prefix + topic, queue_id)
            for topic, queues in FILLED.items()
            for queue_id in range(queues)
        ]
        return [*own, *SYSTEM_QUEUES]


class Stage:
    """The name server, the client, and the directories by name. One method per act."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._nameserver = start_name_server(bench)
        self._client = StoreClient(bench, self._nameserver)
        self._directories = {
            name: Directory(
                name,
                bench.new_folder(name) / "store",
                bench.reserve_ports(),
                USUAL if name == "apache-clean" else SMALL,
            )
            for name in (*OURS, *APACHES)
        }

    def __getitem__(self, name: str) -> Directory:
        return self._directories[name]

    # --- act 1 --------------------------------------------------------------------------------

    def write(self) -> None:
        """Our store writes two directories; one writer stops, the other one is killed."""
        clean, killed = (self[name] for name in OURS)
        stopping, endless = self._start_writer(clean, "stop"), self._start_writer(killed, "kill")

        assert stopping.wait_for_exit(timeout_s=WRITE_TIMEOUT_S) == 0, stopping.tail()
        wait_until(
            lambda: endless.exit_code is not None or in_its_tail(killed),
            timeout_s=WRITE_TIMEOUT_S,
            what=lambda: f"the writer to be in its tail\n{endless.tail()}",
        )
        endless.kill()
        assert in_its_tail(killed), endless.tail()

        for directory in (clean, killed):
            directory.told = told_messages(directory.told_file)
            offsets = {queue_id: 10 + queue_id for queue_id in range(4)}
            write_config(
                directory.root,
                ends_of(by_place(directory.told)),
                ConsumerOffsetWrapper(offset_table={f"{directory.prefix}plain@{GROUP}": offsets}),
            )

    def _start_writer(self, directory: Directory, fate: str) -> PeerProcess:
        return start_writer(
            self._bench,
            directory.root,
            prefix=directory.prefix,
            port=directory.port,
            told=directory.told_file,
            fate=fate,
        )

    # --- act 2 --------------------------------------------------------------------------------

    def open_with_apache(self) -> None:
        """Apache opens our directories, and makes two of its own."""
        names = (*OURS, *APACHES)
        brokers = dict(zip(names, self._brokers_on(*names), strict=True))
        for directory in map(self.__getitem__, OURS):
            ends = ends_of(by_place(directory.told))
            self._look(directory, brokers[directory.name], ends)
            self._send(directory, brokers[directory.name], ends)
        for directory in map(self.__getitem__, APACHES):
            self._fill(directory, brokers[directory.name])
        self._kill_in_a_burst(self["apache-killed"], brokers.pop("apache-killed"))
        brokers.pop("ours-killed").process.kill()  # all that was sent is acknowledged
        stop_cleanly(*brokers.values())

    def _brokers_on(self, *names: str) -> list[Broker]:
        """Start brokers on these directories and wait until all are registered."""
        brokers = [
            start_broker_on(
                self._bench,
                self._nameserver,
                directory.root,
                name=f"{directory.name}-broker",
                port=directory.port,
                sizes=directory.sizes,
            )
            for directory in map(self.__getitem__, names)
        ]
        for broker in brokers:
            broker.wait_until_started()
        for broker in brokers:
            wait_until(
                partial(self._is_registered, broker),
                timeout_s=REGISTER_TIMEOUT_S,
                what=f"{broker.name} to register",
            )
        return brokers

    def _is_registered(self, broker: Broker) -> bool:
        """Ask the broker again and again: left alone, it may take ten seconds."""
        if broker.name in self._nameserver.brokers():
            return True
        self._client.ask("register", broker.address)
        return broker.name in self._nameserver.brokers()

    def _look(self, directory: Directory, broker: Broker, queues: Iterable[Queue]) -> None:
        view = self._client.read(broker, queues)
        questions = list(questions_about(view.messages))
        plain = [(f"{directory.prefix}plain", queue_id) for queue_id in range(4)]
        directory.looks.append(
            Look(
                view,
                list(zip(questions, self._client.find(broker, questions), strict=True)),
                self._client.committed(GROUP, broker, plain),
            )
        )

    def _send(self, directory: Directory, broker: Broker, queues: Iterable[Queue]) -> None:
        words = queue_words(filter(directory.owns, queues))
        directory.looks[-1].sent = self._client.ask("send", broker.name, SENDS_PER_QUEUE, *words)

    def _fill(self, directory: Directory, broker: Broker) -> None:
        client, prefix = self._client, directory.prefix
        topics = [f"{prefix}{topic}:{queues}" for topic, queues in FILLED.items()]
        client.ask("create", broker.address, *topics)
        client.ask("fill", broker.name, prefix)
        offsets = [f"{prefix}plain:{queue_id}:{7 + queue_id}" for queue_id in range(4)]
        client.ask("commit", GROUP, broker.name, *offsets)
        self._look(directory, broker, directory.filled_queues())

    def _kill_in_a_burst(self, directory: Directory, broker: Broker) -> None:
        """Kill a broker that has written offsets down, while a client sends without a pause."""
        offsets = directory.root / "config" / "consumerOffset.json"
        wait_until(
            lambda: offsets.exists() and f"{directory.prefix}plain@{GROUP}" in offsets.read_text(),
            timeout_s=PERSIST_TIMEOUT_S,
            what="the broker to write committed offsets down",
        )
        topic, queues = f"{directory.prefix}tail", FILLED["tail"]
        self._client.ask("burst", broker.name, topic, queues, directory.told_file)
        wait_until(
            partial(in_its_tail, directory),
            timeout_s=KILL_TIMEOUT_S,
            what="the burst to be under way",
        )
        broker.process.kill()
        directory.looks[-1].sent = told_messages(directory.told_file)

    # --- acts 3 and 4 -------------------------------------------------------------------------

    def open_with_our_store(self) -> None:
        """Our store opens every directory that Apache has left, and adds to each queue."""
        for directory in self._directories.values():
            view = directory.looks[0].view
            found = survey(
                directory.root,
                directory.sizes,
                times=view.times,
                append=more_messages(directory, view.ends),
                remove_files=1 if directory.name == CURTAILED else 0,
            )
            directory.surveys.append(found)

    def open_with_apache_again(self) -> list[Broker]:
        """Apache opens three directories again; returns the brokers, which still run."""
        names = (*APACHES, CURTAILED)
        brokers = self._brokers_on(*names)
        for directory, broker in zip(map(self.__getitem__, names), brokers, strict=True):
            queues = directory.looks[0].view.ends
            self._look(directory, broker, queues)
            self._send(directory, broker, queues)
        return brokers


def in_its_tail(directory: Directory) -> bool:
    """Whether so many of the last kind of messages are acknowledged that a kill hits it there."""
    file = directory.told_file
    return file.exists() and file.read_text().count(f"{directory.prefix}tail") >= TAIL_MESSAGES


def questions_about(messages: Mapping[Place, Facts]) -> Iterator[Question]:
    """How to find some of these messages: by each key, by unique key, by id."""
    for number, facts in enumerate(messages.values()):
        topic, properties = facts["topic"], facts["properties"]
        if number % 5 == 0:
            for key in properties.get("KEYS", "").split():
                yield "key", topic, key
        # The client asks the address inside the id, which must be one that listens.
        if number % 9 == 0 and facts["storeHost"].startswith("7f000001:"):
            yield "id", topic, facts["offsetMsgId"]
        if number % 9 == 0 and "UNIQ_KEY" in properties:
            yield "unique", topic, properties["UNIQ_KEY"]


def more_messages(directory: Directory, queues: Iterable[Queue]) -> Iterator[StoreMessage]:
    for topic, queue_id in filter(directory.owns, queues):
        for number in range(APPENDS_PER_QUEUE):
            yield StoreMessage(
                topic,
                queue_id,
                b"added by us",
                f"KEYS\x01added-{number}\x02TAGS\x01TagA\x02".encode(),
                store_host=host_bytes("127.0.0.1", directory.port),
            )
