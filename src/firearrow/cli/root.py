"""The tree of commands, loaded branch by branch: `firearrow topic ls` loads no broker and no Spark.

`FAMILIES` is the list of what there is. A family lives in the modules named there: the first has
the typer application, the others add commands to it when they are imported. What `commands.py` has
and this table does not is found as well, but help does not list it (a test tells).
"""

from __future__ import annotations

import importlib
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

CLI: Final = "firearrow.cli"
SERVERS: Final = f"{CLI}.commands"


class Family(NamedTuple):
    """One word after `firearrow`."""

    name: str
    help: str
    panel: str
    modules: tuple[str, ...]  # below firearrow.cli, in the order in which they are imported
    attribute: str = ""  # the typer application in the first of them; else a command of SERVERS


FAMILIES: Final = (
    Family("up", "Run a name server and a broker in one process.", "Servers", ("commands",)),
    Family("nameserver", "Run a name server.", "Servers", ("commands",)),
    Family("broker", "Run a broker.", "Servers", ("commands",)),
    Family("controller", "Run a controller: it elects masters.", "Servers", ("commands",)),
    Family(
        "console",
        "Web pages over a cluster: look, search, repair.",
        "Servers",
        ("console_commands",),
        "console_app",
    ),
    Family(
        "cluster",
        "Brokers and name servers: who is there, how they are, settings.",
        "Operate",
        # One line for each module that adds commands to `cluster_app`.
        (
            "cluster_app",
            "cluster_view_commands",
            "cluster_config_commands",
            "cluster_replica_commands",
            "cluster_commands",
        ),
        "cluster_app",
    ),
    Family(
        "topic",
        "Topics: list, look, create, change, remove.",
        "Operate",
        ("topic_commands",),
        "topic_app",
    ),
    Family(
        "group",
        "Consumer groups: settings, members, lag, resets.",
        "Operate",
        ("group_commands", "group_offset_commands"),
        "group_app",
    ),
    Family(
        "msg",
        "Messages: send, find, tail, trace, dead letters.",
        "Operate",
        ("message_commands", "message_live_commands", "dead_letter_commands"),
        "message_app",
    ),
    Family(
        "transaction",
        "Transactions: which are open; parked ones asked about again.",
        "Operate",
        ("waiting_commands",),
        "transaction_app",
    ),
    Family(
        "timer",
        "Messages that wait for their time: count, list, take back.",
        "Operate",
        ("waiting_commands",),
        "timer_app",
    ),
    Family(
        "store",
        "Look into a store directory without a broker.",
        "Operate",
        ("store_commands",),
        "store_app",
    ),
    Family(
        "filter",
        "Try SQL92 expressions; install filters on a broker.",
        "Operate",
        ("filter_commands",),
        "filter_app",
    ),
    Family(
        "pipeline",
        "Jobs on Spark: run them, look at them.",
        "Operate",
        ("pipeline_app", "pipeline_commands", "pipeline_file_commands", "project_commands"),
        "pipeline_app",
    ),
    Family(
        "mqadmin", "RocketMQ's own commands and flags.", "Operate", ("mqadmin.app",), "mqadmin_app"
    ),
    Family(
        "bench", "Load a cluster and see what limits it.", "Help", ("bench_commands",), "bench_app"
    ),
    Family("doctor", "Find what is wrong here, with remedies.", "Help", ("doctor_command",), "app"),
    Family("explain", "What a code or an error means.", "Help", ("explain_command",), "app"),
    Family("context", "Name clusters, and choose one.", "Help", ("context_commands",), "app"),
    Family("version", "Show the version.", "Help", ("commands",)),
)


class LazyGroup(TyperGroup):
    """Commands that are known by name and help, and loaded when they are called."""

    def __init__(self, **attrs: Any) -> None:  # noqa: ANN401 - typer's
        super().__init__(**attrs)
        for family in FAMILIES:
            self.commands[family.name] = TyperCommand(
                family.name,
                help=family.help,
                rich_help_panel=family.panel,
                context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
            )

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - typer's
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's
        if args and not args[0].startswith("-"):
            self.load(args[0])
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> Any:  # noqa: ANN401 - a click command
        """The real command of a name, if there is one."""
        command = command_of(name)
        if command is not None:
            self.commands[name] = command
        return command


def command_of(name: str) -> Any:  # noqa: ANN401 - a click command, or None
    family = next((one for one in FAMILIES if one.name == name), None)
    if family is None or not family.attribute:
        servers = typer.main.get_command(importlib.import_module(SERVERS).app)
        return getattr(servers, "commands", {}).get(name)
    modules = [importlib.import_module(f"{CLI}.{module}") for module in family.modules]
    application = getattr(modules[0], family.attribute)
    command = typer.main.get_command(application)
    command.name = name
    # Completion is installed for the whole tree, by the root.
    hidden = {"install_completion", "show_completion"}
    command.params = [one for one in command.params if one.name not in hidden]
    return command


app = typer.Typer(
    name="firearrow",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=(
        "Exit codes: 0 done, 1 something is wrong or was refused, 2 wrong command line, "
        "3 nobody reachable, 4 not there, 130 interrupted. Clusters: `firearrow context`."
    ),
)


@app.callback()
def main() -> None:
    """A message queue that speaks RocketMQ.

    [bold]Examples[/bold]

      firearrow up

      firearrow topic ls

      firearrow group lag billing --watch
    """
