"""`firearrow mqadmin NAME ...`: RocketMQ's command names with their flags and columns."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from firearrow.base.errors import ConfigError
from firearrow.cli import exits
from firearrow.cli.contexts import ContextFile
from firearrow.cli.target import Target

if TYPE_CHECKING:
    from firearrow.cli.mqadmin.run import Command

mqadmin_app = typer.Typer(name="mqadmin", rich_markup_mode="rich")


def complete(incomplete: str) -> list[str]:
    from firearrow.cli.mqadmin.table import COMMANDS  # noqa: PLC0415

    return [name for name in sorted(COMMANDS) if name.lower().startswith(incomplete.lower())]


@mqadmin_app.command(
    "mqadmin",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
)
def mqadmin(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME] [FLAGS]...", help="As RocketMQ's tool.", autocompletion=complete
        ),
    ] = None,
) -> None:
    """Run a command of RocketMQ's `mqadmin`, with its flags and its columns.

    Without a name, list them; NAME -h shows the flags of one. Name servers come from -n, else from
    the context. Exit codes are those of all commands here, not always 0.

    [bold]Examples[/bold]

      firearrow mqadmin

      firearrow mqadmin clusterList -n 127.0.0.1:9876

      firearrow mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t orders -r 8 -w 8

      firearrow mqadmin consumerProgress -g billing -h
    """
    given = list(words or [])
    with exits.one_line(" ".join(["mqadmin", *given[:1]])):
        run_words(given)


def run_words(words: list[str]) -> None:
    from firearrow.cli.mqadmin.flags import COMMON, parse  # noqa: PLC0415 - 0.2 s, for a call
    from firearrow.cli.mqadmin.run import Run  # noqa: PLC0415
    from firearrow.cli.mqadmin.table import COMMANDS, NOT_APPLICABLE  # noqa: PLC0415

    if not words or words == ["help"]:
        typer.echo(overview())
        return
    name, *rest = words if words[0] != "help" else [words[1], "-h"]
    if name in NOT_APPLICABLE:
        raise ConfigError(f"{name} is not applicable here because {NOT_APPLICABLE[name]}")
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, [*COMMANDS, *NOT_APPLICABLE], n=2)
        raise ConfigError(
            f"there is no command {name!r}; "
            + (f"did you mean {' or '.join(near)}?" if near else "see: firearrow mqadmin")
        )
    given = parse(name, (*command.flags, *COMMON), rest)
    if given.has("h"):
        typer.echo(usage(command))
        return
    where = ContextFile().resolve(given.optional("n"), None)
    with Target(where) as target:
        command.run(Run(target, given))


def overview() -> str:
    from firearrow.cli.mqadmin.table import COMMANDS, NOT_APPLICABLE  # noqa: PLC0415

    lines = [f"   {name:<24} {one.help}" for name, one in sorted(COMMANDS.items())]
    lines += ["", "Not applicable here:", ""]
    lines += [f"   {name:<34} {why}" for name, why in sorted(NOT_APPLICABLE.items())]
    lines += ["", "firearrow mqadmin NAME -h shows the flags of a command."]
    return "The commands of RocketMQ's mqadmin:\n\n" + "\n".join(lines)


def usage(command: Command) -> str:
    from firearrow.cli.mqadmin.flags import COMMON  # noqa: PLC0415

    lines = [f"usage: firearrow mqadmin {command.name} [FLAGS]", "", command.help, ""]
    for one in sorted((*command.flags, *COMMON), key=lambda each: each.short):
        value = " <arg>" if one.takes else ""
        short = f"-{one.short}," if one.short else "   "
        needed = " (needed)" if one.required else ""
        lines.append(f"  {f'{short}--{one.long}{value}':<36} {one.help}{needed}")
    return "\n".join(lines)
