"""What executors need, in one archive: FireArrow with its compiled code, and what it stands on.

Executors need Python and pyarrow besides. A zip for `--py-files` would do as well, but compiled
modules cannot be imported from a zip, so that the archive is one that Spark unpacks. It must not
be unpacked as `firearrow`: that directory would be taken for the package.
"""

from __future__ import annotations

import importlib.util
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

NEEDED: Final = ("firearrow", "pyspark_rocketmq", "msgspec")
IF_THERE: Final = ("pyspark_commitlog", "lz4", "zstandard")  # packed bodies need the last two
SUFFIX: Final = ".tar.gz"
LEFT_OUT: Final = frozenset({".c", ".pyx", ".pxd", ".h", ".pyc"})
SUBMIT: Final = "firearrow_submit.py"


def package(archive: Path, also: Sequence[Path] = ()) -> Path:
    """Write the archive, and beside it the program for `spark-submit`; the program's path.

    Args:
        archive: Where; its name ends with .tar.gz.
        also: Files or packages of the user's own, such as those that Python steps import.
    """
    if not archive.name.endswith(SUFFIX):
        raise ConfigError(f"{archive}: a name that ends with {SUFFIX} expected")
    found = {name: _place(name) for name in (*NEEDED, *IF_THERE)}
    missing = [name for name in NEEDED if found[name] is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)} cannot be found: install firearrow first")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        for place in [*(one for one in found.values() if one is not None), *also]:
            if not place.exists():
                raise ConfigError(f"{place} is not there")
            tar.add(place, arcname=place.name, filter=_wanted)
    program = archive.with_name(SUBMIT)
    source = importlib.util.find_spec("firearrow.cli.submit")
    assert source is not None
    assert source.origin is not None
    program.write_text(Path(source.origin).read_text("utf-8"), "utf-8")
    return program


def _place(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin else None


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = Path(member.name)
    if path.suffix in LEFT_OUT or "__pycache__" in path.parts:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
