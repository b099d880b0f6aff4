"""Stores that Apache RocketMQ 5.3.3 wrote, for tests on Spark."""

from __future__ import annotations

import gzip
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, Final

DATA: Final = Path(__file__).parent.parent / "conformance" / "data"
STORES: Final = ("clean", "killed")
RECORDED_MS: Final = 1_794_800_000_000  # a few hours after the recording


@cache
def manifest(store: str) -> dict[str, Any]:
    with gzip.open(DATA / f"store-5.3.3-{store}.manifest.json.gz") as file:
        return dict(json.load(file))


def unpack(store: str, folder: Path) -> Path:
    """The store's directory, below `folder`."""
    with tarfile.open(DATA / f"store-5.3.3-{store}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def settings_file(store: str, folder: Path) -> Path:
    """The configuration of the broker that wrote it."""
    path = folder / f"{store}.conf"
    lines = [f"{name}={value}\n" for name, value in manifest(store)["settings"].items()]
    path.write_text("".join(lines))
    return path
