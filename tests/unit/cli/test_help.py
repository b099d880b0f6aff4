"""Every command says how it is used, and what it says can be typed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from firearrow.cli.commands import app as servers
from firearrow.cli.root import FAMILIES, app, command_of

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = re.compile(r"^\s*(firearrow .+?)\s*$", re.MULTILINE)
WITHOUT_EXAMPLES_OF_THEIR_OWN = {"--help"}


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Commands that do something, by their full names."""
    below = getattr(command, "commands", None)
    if not below:
        yield name, command
        return
    for word, one in below.items():
        yield from leaves(f"{name} {word}", one)


COMMANDS = {
    name: command
    for family in FAMILIES
    for name, command in leaves(family.name, command_of(family.name))
}


def test_there_are_commands_in_every_family() -> None:
    assert {name.split()[0] for name in COMMANDS} == {family.name for family in FAMILIES}
    assert len(COMMANDS) > 50


def test_every_command_of_the_servers_is_in_the_table_of_families() -> None:
    """What is added to `commands.py` gets a line in `FAMILIES`, else help does not list it."""
    known: dict[str, Any] = typer.main.get_command(servers).commands  # type: ignore[attr-defined]
    assert known.keys() <= {family.name for family in FAMILIES}
    below = {name for family, one in known.items() for name, _ in leaves(family, one)}
    assert below <= COMMANDS.keys()  # a module that adds to a family is named in its line


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_has_examples_that_parse(name: str) -> None:
    examples = EXAMPLE.findall(COMMANDS[name].help or "")
    assert examples, f"firearrow {name} --help shows no example"
    assert any(example.startswith(f"firearrow {name}") for example in examples)
    for example in examples:
        words = shlex.split(example)[1:]
        command: Any = command_of(words.pop(0))
        while hasattr(command, "commands") and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        with command.make_context(command.name, words):  # raises what it cannot understand
            pass


WRITES = re.compile(
    r" (create|update|rm|perm|order|reset|clone|send|resend|deliver|export|drain|undrain|clean|set"
    r"|add|use|install|rebuild)$"
)
LOOKS = re.compile(r"^(topic|group|cluster|msg)( dlq)? (ls|show|status|lag|members|info|health)$")


def options_of(name: str) -> set[str]:
    return {option for one in COMMANDS[name].params for option in one.opts}


def test_every_write_can_be_tried_dry() -> None:
    writes = [name for name in COMMANDS if WRITES.search(name)]
    assert len(writes) > 20
    assert [name for name in writes if "--dry-run" not in options_of(name)] == []


def test_every_listing_can_be_watched_and_printed_in_three_forms() -> None:
    # `cluster status` is about processes on this machine, not about a cluster that is asked.
    looks = [name for name in COMMANDS if LOOKS.search(name) and name != "cluster status"]
    assert len(looks) > 10
    wanted = {"--watch", "--output", "--context", "-n"}
    assert [name for name in looks if not wanted <= options_of(name)] == []


def test_help_lists_every_family_and_the_exit_codes() -> None:
    printed = CliRunner().invoke(app, ["--help"]).stdout
    for family in FAMILIES:
        assert re.search(rf"│ {family.name} ", printed), family.name
    for word in ("0 done", "3", "nobody reachable", "130 interrupted"):
        assert word in printed


def test_help_loads_no_server_no_client_and_no_spark() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from firearrow.cli.root import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "heavy = ['asyncio', 'pyspark', 'nicegui', 'firearrow.broker', 'firearrow.client']\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_wrong_word_is_answered_with_the_nearest_one() -> None:
    ran = CliRunner().invoke(app, ["topci", "ls"])
    assert ran.exit_code == 2
    assert "topic" in ran.stderr


def test_bash_is_given_words_that_complete_a_command() -> None:
    environment = {"_FIREARROW_COMPLETE": "complete_bash", "COMP_WORDS": "firearrow to"}
    ran = CliRunner().invoke(app, [], env=environment | {"COMP_CWORD": "1"}, prog_name="firearrow")
    assert ran.stdout.split() == ["topic"]
