"""Projects of Spark's own declarative pipelines: handed to `spark-pipelines`, ready to run.

What it needs that a user would have to find out: our Java, our Python in the workers, and a
catalog that is still there at the second run. docs/decisions/0013-plain-streams-for-pipelines.md
says why our own projects do not run on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from firearrow.base.errors import ConfigError
from firearrow.pipeline.sessions import java_environment, parse_conf

if TYPE_CHECKING:
    from collections.abc import Sequence

SPEC_FILES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
# The catalog in memory forgets its tables, and the second run finds their files in its way.
DEFAULTS: Final = {"spark.sql.catalogImplementation": "hive"}


def spec_of(project: Path) -> Path | None:
    """The file of a declarative project, if `project` is one or has one."""
    if project.name in SPEC_FILES:
        return project
    found = [project / name for name in SPEC_FILES if (project / name).is_file()]
    return found[0] if found else None


def command(spec: Path, verb: str, *, master: str | None, conf: Sequence[str]) -> list[str]:
    """The command line for `spark-pipelines`."""
    home = Path(pyspark.__file__).parent
    settings = DEFAULTS | parse_conf(conf)
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    if master is not None:
        if not master.startswith(("local", "sc://")):
            raise ConfigError(
                f"--master {master}: declarative pipelines run on local[n], or on a Spark Connect "
                "server (sc://host:port), which may belong to a cluster"
            )
        options += ["--remote", master]
    return [str(home / "bin" / "spark-pipelines"), verb, *options, "--spec", spec.name]


def run(
    spec: Path, *, master: str | None = None, conf: Sequence[str] = (), verb: str = "run"
) -> int:
    """Run it in a process of its own, in the project's folder; its exit code."""
    environment = (
        os.environ
        | java_environment()
        | {
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
        }
    )
    asked = command(spec, verb, master=master, conf=conf)
    return subprocess.run(asked, cwd=spec.parent, env=environment, check=False).returncode
