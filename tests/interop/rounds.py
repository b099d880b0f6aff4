"""Rounds of real clients: start the program of one language, read its result lines."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .apache import RELEASE_5, NameServer, java_command
from .cache import CPP_SOURCES, cpp_packages, go_program, node_program, require_tool
from .processes import Bench, PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCENARIO_TIMEOUT_S: Final = 30
ROUND_TIMEOUT_S: Final = 150.0

EVERY_SCENARIO: Final = (
    "sync-send",
    "async-send",
    "oneway-send",
    "batch-send",
    "query-by-key",
    "push-consume",
    "tag-filter",
    "lite-pull",
    "pull",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round printed: the facts of each scenario, in order, and the verdict."""

    scenarios: Mapping[str, Mapping[str, Any]]
    passed: bool
    process: PeerProcess

    def __getitem__(self, scenario: str) -> Mapping[str, Any]:
        """The facts of one scenario."""
        return self.scenarios[scenario]

    def failures(self) -> dict[str, Mapping[str, Any]]:
        """The scenarios that failed, with their facts."""
        return {name: facts for name, facts in self.scenarios.items() if not facts["ok"]}


@dataclass(frozen=True, slots=True)
class RunningRound:
    """A round that was started; other rounds can run beside it."""

    process: PeerProcess

    def finish(self) -> Outcome:
        """Wait for its end and read what it printed.

        Raises:
            PeerError: If it ended without a verdict.
        """
        self.process.wait_for_exit(timeout_s=ROUND_TIMEOUT_S)
        # Clients print other things as well; ours are the lines that are JSON objects.
        lines = [line for line in self.process.output().splitlines() if line.startswith("{")]
        results = [json.loads(line) for line in lines]
        verdicts = [line["verdict"] for line in results if "verdict" in line]
        if len(verdicts) != 1:
            raise PeerError(f"no verdict\n{self.process.tail()}")
        return Outcome(
            scenarios={line["scenario"]: line for line in results if "scenario" in line},
            passed=verdicts[0] == "pass",
            process=self.process,
        )


def round_arguments(
    nameserver: str, topic: str, scenarios: Sequence[str], *, count: int
) -> list[str]:
    """The arguments that the programs of all languages take."""
    return [
        f"nameserver={nameserver}",
        f"topic={topic}",
        f"group={topic}-group",
        f"count={count}",
        f"timeout={SCENARIO_TIMEOUT_S}",
        *scenarios,
    ]


def start_java_round(
    bench: Bench,
    nameserver: NameServer | str,
    topic: str,
    scenarios: Sequence[str] = EVERY_SCENARIO,
    *,
    release: str = RELEASE_5,
    properties: Mapping[str, str] | None = None,
    count: int = 16,
) -> RunningRound:
    """Start scenarios of the Java client.

    Args:
        bench: Owns the process.
        nameserver: Where the client looks for its route.
        topic: The topic; the groups are named after it.
        scenarios: Names from Catalogue.java, run in this order.
        release: The release of the client.
        properties: System properties of the JVM, such as `rocketmq.serialize.type`.
        count: How many messages each sending scenario sends.
    """
    address = nameserver if isinstance(nameserver, str) else nameserver.address
    folder = bench.new_folder(f"java-{release}")
    command = java_command(
        "firearrow.interop.Round",
        release=release,
        work_dir=folder,
        properties=properties,
        arguments=round_arguments(address, topic, scenarios, count=count),
    )
    return RunningRound(bench.start(f"java-{release}", command, work_dir=folder))


def start_go_round(
    bench: Bench,
    nameserver: NameServer,
    topic: str,
    scenarios: Sequence[str] = ("sync-send", "push-consume"),
    *,
    broker: str = "",
    count: int = 16,
) -> RunningRound:
    """Start scenarios of the classic Go client; administration needs the broker's address."""
    folder = bench.new_folder("go")
    command = [
        str(go_program()),
        f"broker={broker}",
        *round_arguments(nameserver.address, topic, scenarios, count=count),
    ]
    process = bench.start("go", command, work_dir=folder, environment={"HOME": str(folder)})
    return RunningRound(process)


def start_node_round(
    bench: Bench,
    nameserver: NameServer,
    topic: str,
    scenarios: Sequence[str] = ("sync-send", "push-consume"),
    *,
    count: int = 16,
) -> RunningRound:
    """Start scenarios of the Node client ali-ons, for which the topic must exist."""
    program = node_program()
    folder = bench.new_folder("node")
    command = [
        require_tool("node"),
        os.fspath(program),
        *round_arguments(nameserver.address, topic, scenarios, count=count),
    ]
    process = bench.start("node", command, work_dir=folder, environment={"HOME": str(folder)})
    return RunningRound(process)


def start_cpp_round(
    bench: Bench, nameserver: NameServer, topic: str, scenarios: Sequence[str], *, count: int = 16
) -> RunningRound:
    """Start scenarios of the C++ client."""
    folder = bench.new_folder("cpp")
    command = [sys.executable, os.fspath(CPP_SOURCES / "round.py")]
    command += round_arguments(nameserver.address, topic, scenarios, count=count)
    environment = {"HOME": str(folder), "PYTHONPATH": os.fspath(cpp_packages())}
    return RunningRound(bench.start("cpp", command, work_dir=folder, environment=environment))
