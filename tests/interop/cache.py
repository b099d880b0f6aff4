"""Fetch and build what the interop tests need, once: jars, compiled programs, node modules.

Each thing lives in a folder of the cache whose name ends with a hash of what it is made from, so a
changed source or list of names gives a new folder and an unchanged one costs nothing. Nothing here
knows an address: Maven, Go and npm use what is configured on the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

from .processes import PeerError, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

HERE: Final = Path(__file__).resolve().parent
REPOSITORY: Final = HERE.parent.parent
JAVA_SOURCES: Final = HERE / "java"
GO_SOURCES: Final = HERE / "go"
NODE_SOURCES: Final = HERE / "node"
CPP_SOURCES: Final = HERE / "cpp"
CPP_PACKAGE: Final = "rocketmq==0.4.4"  # the C++ client, compiled, behind a thin layer of ctypes

FETCH_TRIES: Final = 3
FETCH_TIMEOUT_S: Final = 600.0
LOCK_TIMEOUT_S: Final = 1200.0
COMPLETE: Final = ".complete"

REMEDIES: Final[Mapping[str, str]] = {
    "java": "install a Java runtime, version 17 or newer, and put `java` on PATH",
    "javac": "install a JDK, version 17 or newer (a runtime alone has no compiler)",
    "mvn": "install Apache Maven 3.8 or newer and put `mvn` on PATH",
    "go": "install Go 1.22 or newer and put `go` on PATH",
    "node": "install Node.js 20 or newer and put `node` on PATH",
    "npm": "install npm (it comes with Node.js) and put it on PATH",
    "etcd": "install etcd 3.4 or newer (etcd-server in Debian) and put `etcd` on PATH",
}


def cannot_run(reason: str) -> NoReturn:
    """Skip the test, or fail it on CI, where a missing peer would hide a broken promise."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (CI is set, so this is an error)", pytrace=False)
    pytest.skip(reason)


def require_tool(name: str) -> str:
    """Return the path of a program, or skip the test and say how to get it."""
    found = shutil.which(name)
    if found is None:
        cannot_run(f"`{name}` was not found: {REMEDIES[name]}")
    return found


def cache_root() -> Path:
    """The folder everything is kept in; FIREARROW_CACHE moves it."""
    base = os.environ.get("FIREARROW_CACHE")
    return (Path(base) if base else REPOSITORY / ".cache") / "interop"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; the system frees it when its holder dies, so none is ever left behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:

        def take() -> bool:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        wait_until(take, timeout_s=LOCK_TIMEOUT_S, what=f"another run to free {path.name}")
        yield


def fingerprint(files: Iterable[Path], *more: str) -> str:
    """Hash names and contents of some files, and some words, to a short text."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for word in more:
        digest.update(word.encode() + b"\0")
    return digest.hexdigest()[:12]


def made_once(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return the cached folder `name-key`, making its content first if it is not complete.

    Args:
        name: What the folder holds.
        key: The fingerprint of everything the content depends on.
        make: Fills an empty folder.
    """
    folder = cache_root() / f"{name}-{key}"
    marker = folder / COMPLETE
    if marker.exists():
        return folder
    with locked(cache_root() / f"{name}.lock"):
        if not marker.exists():
            # Left by a run that was interrupted: half a class path gives errors nobody understands.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            make(folder)
            marker.touch()
    return folder


def run_tool(
    command: Sequence[str],
    *,
    folder: Path,
    tries: int = 1,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a build tool and return what it printed.

    Args:
        command: The tool and its arguments.
        folder: Where it runs.
        tries: How often to try; more than one for tools that use the network.
        environment: Added to ours.

    Raises:
        PeerError: If the last try failed as well.
    """
    output = ""
    for attempt in range(1, tries + 1):
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=FETCH_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            output = f"no end after {FETCH_TIMEOUT_S:g} s"
        else:
            if done.returncode == 0:
                return done.stdout
            output = done.stdout
        if attempt < tries:
            time.sleep(2.0**attempt)
    raise PeerError(
        f"failed {tries} time(s): {' '.join(command)}\n{output[-4000:]}\n"
        "If it says that something could not be downloaded, check the network and run it again."
    )


def apache_jars(version: str) -> Path:
    """The folder with the jars of one RocketMQ release and all they depend on."""
    pom = JAVA_SOURCES / f"apache-{version}" / "pom.xml"

    def make(folder: Path) -> None:
        require_tool("java")
        run_tool(
            [
                require_tool("mvn"),
                "--batch-mode",
                "--quiet",
                f"--file={pom}",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={folder}",
            ],
            folder=folder,
            tries=FETCH_TRIES,
        )

    return made_once(f"jars-{version}", fingerprint([pom]), make)


def java_programs(version: str) -> Path:
    """The folder with our own Java programs, compiled against one RocketMQ release."""
    jars = apache_jars(version)
    # Beside the list of a release lies what only that release can compile.
    sources = [*JAVA_SOURCES.glob("*.java"), *JAVA_SOURCES.glob(f"apache-{version}/*.java")]

    def make(folder: Path) -> None:
        command = [require_tool("javac"), "-nowarn", "-Xlint:none", "--release", "17"]
        command += ["-cp", f"{jars}/*", "-d", str(folder), *map(str, sorted(sources))]
        run_tool(command, folder=folder)

    return made_once(f"classes-{version}", fingerprint(sources, jars.name), make)


def go_program() -> Path:
    """Our Go program, built."""
    go = require_tool("go")
    sources = [GO_SOURCES / name for name in ("go.mod", "go.sum", "main.go", "ways.go")]

    def make(folder: Path) -> None:
        command = [go, "build", "-mod=readonly", "-o", str(folder / "round"), "."]
        run_tool(
            command,
            folder=GO_SOURCES,
            tries=FETCH_TRIES,
            # The tests may run below a file that names other modules; ours stands alone.
            environment={"GOWORK": "off", "GOFLAGS": "-buildvcs=false"},
        )

    return made_once("go", fingerprint(sources), make) / "round"


def node_program() -> Path:
    """Our Node program, in a folder where its packages are installed."""
    require_tool("node")
    npm = require_tool("npm")
    sources = [NODE_SOURCES / name for name in ("package.json", "round.js")]

    def make(folder: Path) -> None:
        # Beside the packages, because Node looks for them from where the program lies; and not in
        # the source tree, which stays free of them.
        for source in sources:
            shutil.copy(source, folder)
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock"]
        run_tool([*command, "--loglevel=error"], folder=folder, tries=FETCH_TRIES)

    return made_once("node", fingerprint(sources), make) / "round.js"


def cpp_packages() -> Path:
    """The folder with the C++ client, for PYTHONPATH; its program is `cpp/round.py`."""

    def make(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        command += ["--disable-pip-version-check", "--no-deps", "--only-binary=:all:", CPP_PACKAGE]
        run_tool(command, folder=folder, tries=FETCH_TRIES)

    return made_once("cpp", fingerprint([], CPP_PACKAGE), make)


def etcd_program() -> Path:
    """The server of etcd: the machine's own, or that of its Debian, unpacked and not installed."""
    if found := shutil.which("etcd"):
        return Path(found)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        cannot_run(f"`etcd` was not found: {REMEDIES['etcd']}")

    def make(folder: Path) -> None:
        # Lists of our own, so that nobody needs to be root and nothing of the machine's changes.
        (folder / "lists" / "partial").mkdir(parents=True)
        options = {"Dir::State::lists": folder / "lists", "Dir::Cache": folder / "cache"}
        apt = ["apt-get", *(word for key, to in options.items() for word in ("-o", f"{key}={to}"))]
        apt += ["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="]
        run_tool([*apt, "update"], folder=folder, tries=FETCH_TRIES)
        run_tool([*apt, "download", "etcd-server"], folder=folder, tries=FETCH_TRIES)
        (package,) = folder.glob("etcd-server_*.deb")
        run_tool(["dpkg-deb", "--extract", str(package), str(folder)], folder=folder)
        for used in ("lists", "cache"):
            shutil.rmtree(folder / used)

    try:
        return made_once("etcd", fingerprint([], "etcd-server"), make) / "usr" / "bin" / "etcd"
    except PeerError as error:
        cannot_run(f"`etcd` was not found and cannot be fetched: {REMEDIES['etcd']}\n{error}")
