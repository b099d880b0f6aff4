"""`firearrow …` in this process, against a cluster in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from typer.testing import CliRunner

from firearrow.cli.root import app

if TYPE_CHECKING:
    from firearrow.testing import LocalCluster


class Ran(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line below the head."""
        return [line.split() for line in self.stdout.splitlines()[1:]]


class Commands:
    """Runs commands against one cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def run(self, *words: object, code: int = 0, **options: Any) -> Ran:
        """Run a command that must end with an exit code."""
        arguments = [*map(str, words), "-n", self.cluster.nameservers]
        found = CliRunner().invoke(app, arguments, **options)
        assert found.exit_code == code, f"{arguments}: {found.output}\n{found.exception!r}"
        return Ran(found.exit_code, found.stdout, found.stderr)

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--output", "json", code=code).stdout)
