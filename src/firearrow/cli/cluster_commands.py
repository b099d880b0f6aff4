"""`firearrow cluster`: whole clusters on one machine, for trying out: up, status, down.

Every role is a process of its own, with its ports, its data and its log in plain sight: to see what
happens when one is killed, kill it. Nothing is started again by itself.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from firearrow.base.errors import ConfigError
from firearrow.base.files import write_atomically
from firearrow.cli.cluster_app import cluster_app
from firearrow.wire.properties_text import parse_properties

LAYOUTS: Final = Path(__file__).parent / "layouts"
STATE_FILE: Final = "cluster.json"
START_S: Final = 30.0
STOP_S: Final = 15.0
LOOK_S: Final = 0.2
PORTS_APART: Final = 10  # a broker also uses the port two below its own and the one above

Data = Annotated[Path, typer.Option(help="Where everything is kept.")]


@dataclass(slots=True)
class Member:
    """One process of a cluster."""

    name: str
    role: str
    address: str
    pid: int
    log: str
    ha_address: str = ""

    @property
    def is_running(self) -> bool:
        """Whether its process is there, and still is what we started."""
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return _responds(self.pid) if sys.platform != "linux" else False
        return b"firearrow" in words


def _responds(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


@cluster_app.command("up")
def up_command(
    layout: Annotated[
        str, typer.Option(help="2m-noslave, 2m-2s-async or 2m-2s-sync; or a folder of files.")
    ] = "2m-2s-sync",
    data: Data = Path("firearrow-cluster"),
    base_port: Annotated[
        int, typer.Option(help="Of the name server; brokers follow. 0 takes free ports.")
    ] = 9876,
) -> None:
    """Start a name server and the brokers of a layout, until SIGTERM or Ctrl-C.

    [bold]Examples[/bold]

      firearrow cluster up

      firearrow cluster up --layout 2m-2s-async --data /tmp/try --base-port 0
    """
    try:
        files = layout_files(layout)
        refuse_second(data)
    except ConfigError as error:
        _give_up("up", error)
    cluster = RunningCluster(data)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        cluster.start(files, base_port)
        show(cluster.members)
        typer.echo("Ctrl-C stops all; kill a pid to see what the others do.")
        cluster.watch()
    except KeyboardInterrupt:
        typer.echo("stopping")
    except ConfigError as error:
        cluster.stop()
        _give_up("up", error)
    cluster.stop()


@cluster_app.command("status")
def status_command(data: Data = Path("firearrow-cluster")) -> None:
    """Show the processes of a cluster, and which of them are gone.

    [bold]Example[/bold]

      firearrow cluster status --data firearrow-cluster
    """
    members = load_members(data)
    if not members:
        typer.echo(f"no cluster was started in {data}")
        raise typer.Exit(1)
    show(members)


@cluster_app.command("down")
def down_command(data: Data = Path("firearrow-cluster")) -> None:
    """Stop what is left of a cluster, slaves first.

    [bold]Example[/bold]

      firearrow cluster down --data firearrow-cluster
    """
    members = [member for member in load_members(data) if member.is_running]
    stop_all(members)
    (data / STATE_FILE).unlink(missing_ok=True)
    typer.echo(f"{len(members)} processes stopped")


def refuse_second(data: Path) -> None:
    if any(member.is_running for member in load_members(data)):
        raise ConfigError(f"a cluster runs in {data}: firearrow cluster down --data {data}")


def layout_files(layout: str) -> list[Path]:
    """The configuration files of a layout, masters before slaves; ConfigError without any."""
    folder = LAYOUTS / layout if (LAYOUTS / layout).is_dir() else Path(layout)
    files = sorted(folder.glob("*.properties"))
    if not files:
        known = ", ".join(sorted(path.name for path in LAYOUTS.iterdir() if path.is_dir()))
        raise ConfigError(f"there is no layout {layout}: {known}, or a folder of .properties files")
    return sorted(files, key=lambda path: _role_of(path) == "SLAVE")


def _role_of(path: Path) -> str:
    return parse_properties(path.read_bytes()).get("brokerRole", "ASYNC_MASTER").strip().upper()


class RunningCluster:
    """The processes that this command started."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.members: list[Member] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, files: list[Path], base_port: int) -> None:
        """Start one after the other, each when the one before is ready."""
        (self.data / "log").mkdir(parents=True, exist_ok=True)
        home = self.data / "nameserver"
        home.mkdir(exist_ok=True)
        command = ["nameserver", "--port", str(base_port)]
        command += ["-o", f"kvConfigPath={home / 'kvConfig.json'}"]
        names = self._start("nameserver", "name server", command)
        for number, file in enumerate(files, start=1):
            port = base_port + number * PORTS_APART if base_port else 0
            command = ["broker", "-c", str(file), "-n", names.address, "--port", str(port)]
            command += ["-o", f"storePathRootDir={self.data / file.stem}"]
            self._start(file.stem, _role_of(file), command)

    def _start(self, name: str, role: str, words: list[str]) -> Member:
        log = self.data / "log" / f"{name}.log"
        with log.open("ab") as output:
            began = output.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "firearrow", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; we stop them in order
            )
        self._processes[name] = process
        member = Member(name, role, "", process.pid, str(log))
        self.members.append(member)
        self._save()
        text = _wait_until_ready(member, process, began)
        member.address = _named(r"ready on (\S+)$", text)
        member.ha_address = _named(r"for slaves on (\S+)$", text)
        self._save()
        return member

    def _save(self) -> None:
        content = json.dumps([asdict(member) for member in self.members], indent=2)
        write_atomically(self.data / STATE_FILE, content.encode(), keep_backup=False)

    def watch(self) -> None:
        """Say when one is gone; returns when all are."""
        while self._processes:
            for name, process in list(self._processes.items()):
                if process.poll() is not None:
                    del self._processes[name]
                    typer.echo(f"{name} (pid {process.pid}) has ended: {_ending(process)}")
            time.sleep(LOOK_S)

    def stop(self) -> None:
        stop_all([member for member in self.members if member.name in self._processes])
        for process in self._processes.values():
            process.wait()
        (self.data / STATE_FILE).unlink(missing_ok=True)


def _ending(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _wait_until_ready(member: Member, process: subprocess.Popen[bytes], began: int) -> str:
    """What a process says until it is ready; ConfigError if it ends instead."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with Path(member.log).open("rb") as log:
            log.seek(began)
            text = log.read().decode("utf-8", "replace")
        if _named(r"ready on (\S+)$", text):
            return text
        if process.poll() is not None:
            last = text.strip().splitlines()[-1:] or ["it said nothing"]
            raise ConfigError(f"{member.name} does not start: {last[0]}")
        time.sleep(0.02)
    raise ConfigError(f"{member.name} is not ready after {START_S:g} s; its log is {member.log}")


def _named(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else ""


def stop_all(members: list[Member]) -> None:
    """End processes by their ids: those that were started last first, hard if they do not obey."""
    for member in reversed(members):
        _signal(member, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while member.is_running and time.monotonic() < deadline and not _is_dead(member.pid):
            time.sleep(0.02)
        if member.is_running and not _is_dead(member.pid):
            _signal(member, signal.SIGKILL)


def _signal(member: Member, number: signal.Signals) -> None:
    if member.is_running:
        try:
            os.kill(member.pid, number)
            os.kill(member.pid, signal.SIGCONT)  # one that was frozen hears it, too
        except ProcessLookupError:
            pass


def _is_dead(pid: int) -> bool:
    """Whether a child of ours has ended and only waits to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return not _responds(pid)
    return state == "Z"


def load_members(data: Path) -> list[Member]:
    try:
        return [Member(**one) for one in json.loads((data / STATE_FILE).read_text("utf-8"))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{data / STATE_FILE} cannot be read: {error}") from error


def show(members: list[Member]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("name", "role", "address", "HA port", "pid", "state", "log"):
        table.add_column(title, no_wrap=True, overflow="fold")
    for one in members:
        state = "running" if one.is_running else "gone"
        ha_port = one.ha_address.rpartition(":")[2]
        table.add_row(one.name, one.role, one.address, ha_port, str(one.pid), state, one.log)
    console = Console()
    console.width = max(console.width, 160)
    console.print(table)


def _give_up(command: str, error: Exception) -> NoReturn:
    typer.echo(f"firearrow cluster {command}: {error}", err=True)
    raise typer.Exit(2)
