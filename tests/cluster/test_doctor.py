"""`firearrow doctor` as a user runs it, on faults that are really there."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILES = 256
MIB = 1 << 20


def doctor(
    *words: object, code: int, before: Callable[[], None] | None = None
) -> dict[str, dict[str, Any]]:
    """What it finds wrong, by the name of the check; each finding has a remedy."""
    command = [sys.executable, "-m", "firearrow", "doctor", *map(str, words)]
    ran = subprocess.run(
        [*command, "--no-spark", "--output", "json"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=before,
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    found = [one for one in json.loads(ran.stdout) if one["state"] == "wrong"]
    assert all(one["remedy"] for one in found)
    return {one["check"]: one for one in found}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def where(cluster: LocalCluster, tmp_path: Path) -> list[object]:
    """The options of a look in which nothing is wrong, if this machine has room for a broker."""
    return ["-n", cluster.nameservers, "--data", tmp_path / "data", "--port", free_port()]


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        return f"broker={holder.getsockname()[1]}"


def machine_is_fine(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without what is wrong with the machine that runs the tests itself."""
    return {name: one for name, one in found.items() if name not in {"disk", "disk of broker-a"}}


def test_a_port_that_somebody_else_has_is_found(cluster: LocalCluster, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        found = doctor(*where(cluster, tmp_path)[:4], "--port", f"broker={port}", code=1)
    assert machine_is_fine(found).keys() == {f"port {port}"}
    assert "in use" in found[f"port {port}"]["what"]
    assert "ss -ltnp" in found[f"port {port}"]["remedy"]


def test_a_broker_that_advertises_another_address_is_found(tmp_path: Path) -> None:
    with LocalCluster(broker_ip1="127.0.0.77") as astray:  # it listens on 127.0.0.1
        found = machine_is_fine(doctor(*where(astray, tmp_path), code=1))
    assert found.keys() == {"address of broker-a"}
    assert "127.0.0.77" in found["address of broker-a"]["what"]
    assert "brokerIP1" in found["address of broker-a"]["remedy"]


def test_a_clock_that_is_ahead_is_found(tmp_path: Path) -> None:
    with LocalCluster() as early:
        early.advance(seconds=60)
        found = machine_is_fine(doctor(*where(early, tmp_path), code=1))
    assert found.keys() == {"clock of broker-a"}
    assert "ahead of this machine" in found["clock of broker-a"]["what"]


def test_a_low_limit_of_open_files_is_found(cluster: LocalCluster, tmp_path: Path) -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    found = machine_is_fine(doctor(*where(cluster, tmp_path), code=1, before=lower))
    assert found.keys() == {"file limit"}
    assert str(FILES) in found["file limit"]["what"]


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few mebibytes; skipped where nobody may mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs an administrator")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_found(cluster: LocalCluster, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        (disk / "filling").write_bytes(b"x" * 7 * MIB)
        options = ("-n", cluster.nameservers, "--data", disk, "--port", free_port())
        found = doctor(*options, code=1)
    assert "88 % used" in found["disk"]["what"]
    assert "fileReservedTime" in found["disk"]["remedy"]
