"""`firearrow filter`: try an SQL92 expression, and manage a broker's filters written in Python.

Exit codes: 0 fine, 1 the message does not match, 2 the command could not do its work.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from firearrow.base.errors import ConfigError, FirearrowError
from firearrow.base.runtime import SystemClock
from firearrow.cli.output import Column, OutputFormat, Table, print_shown
from firearrow.cli.verbs import DryRun, Output  # noqa: TC001 - typer reads them
from firearrow.filters.sql import compile_sql
from firearrow.model.errors import error_for
from firearrow.net.client import RemotingClient
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

if TYPE_CHECKING:
    from firearrow.wire.command import Command

filter_app = typer.Typer(
    help="Try SQL92 expressions; install filters written in Python on a broker.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

EXIT_NO_MATCH: Final = 1
EXIT_NOT_DONE: Final = 2
TIMEOUT_MS: Final = 30_000  # a filter is loaded once before it is installed

Broker = Annotated[str, typer.Option("-b", "--broker", help="Address of the broker, host:port.")]
Name = Annotated[str, typer.Argument(help="Name of the filter.", show_default=False)]


@filter_app.command("try")
def try_command(
    expression: Annotated[str, typer.Argument(help="An SQL92 expression.", show_default=False)],
    properties: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="Properties of a message."),
    ] = None,
) -> None:
    """Say whether a message with these properties matches an SQL92 expression. Needs no broker.

    [bold]Example[/bold]

      firearrow filter try "a > 5 AND region = 'EU'" a=7 region=EU
    """
    values = {}
    for text in properties or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            _give_up("try", ConfigError(f"{text!r}: NAME=VALUE expected, as a=7"))
        values[name] = value
    try:
        wanted = compile_sql(expression)
    except FirearrowError as error:
        _give_up("try", error)
    if not wanted.matches(values):
        typer.echo("no match")
        raise typer.Exit(EXIT_NO_MATCH)
    typer.echo("match")


@filter_app.command("install")
def install_command(
    name: Name,
    file: Annotated[
        Path, typer.Argument(help="Defines matches(properties, body).", show_default=False)
    ],
    broker: Broker = "127.0.0.1:10911",
    dry_run: DryRun = False,  # noqa: FBT002
) -> None:
    """Install a filter on a broker that lets this machine do so (filterInstallers).

    [bold]Example[/bold]

      firearrow filter install large-orders large_orders.py --broker 127.0.0.1:10911
    """
    try:
        source = file.read_bytes()
        if dry_run:
            known = {one.name for one in _filters(broker)}
            what = "replace" if name in known else "install"
            typer.echo(f"would {what} filter {name} on {broker}: {len(source)} bytes")
            return
        _ask(
            broker,
            request(RequestCode.INSTALL_FILTER, headers.InstallFilterRequest(name=name), source),
        )
    except (OSError, FirearrowError) as error:
        _give_up("install", error)
    typer.echo(f"filter {name} is installed on {broker}")


@filter_app.command("rm")
def remove_command(
    name: Name,
    broker: Broker = "127.0.0.1:10911",
    dry_run: DryRun = False,  # noqa: FBT002
) -> None:
    """Remove a filter from a broker.

    [bold]Example[/bold]

      firearrow filter rm large-orders
    """
    try:
        if dry_run:
            count = sum(one.name == name for one in _filters(broker))
            typer.echo(f"would remove {count} filters of the name {name} from {broker}")
            return
        _ask(broker, request(RequestCode.REMOVE_FILTER, headers.RemoveFilterRequest(name=name)))
    except FirearrowError as error:
        _give_up("rm", error)
    typer.echo(f"filter {name} is removed from {broker}")


@filter_app.command("ls")
def list_command(
    broker: Broker = "127.0.0.1:10911",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,  # noqa: FBT002
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the filters of a broker, and how they are doing.

    [bold]Example[/bold]

      firearrow filter ls --broker 127.0.0.1:10911 --json
    """
    try:
        reply = _ask(broker, request(RequestCode.LIST_FILTERS))
        found = java_json.decode(reply.body, bodies.FilterList).filters
    except FirearrowError as error:
        _give_up("ls", error)
    if as_json:
        typer.echo(reply.body.decode())
        return
    if output is not OutputFormat.TABLE:
        names = ("name", "installed_time", "installed_by", "judged", "stopped", "last_error")
        rows = [[getattr(one, name) for name in names] for one in found]
        print_shown(Table([Column(name) for name in names], rows), output)
        return
    for one in found:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.installed_time / 1000))
        line = f"{one.name}  installed {since} by {one.installed_by}, {one.judged} messages judged"
        if one.stopped:
            line += f", stopped {one.stopped} times"
        typer.echo(line + (f"; last error: {one.last_error}" if one.last_error else ""))


def _filters(broker: str) -> tuple[bodies.FilterInfo, ...]:
    reply = _ask(broker, request(RequestCode.LIST_FILTERS))
    return java_json.decode(reply.body, bodies.FilterList).filters


def _ask(broker: str, command: Command) -> Command:
    """Ask a broker; an answer that says no is raised as the error that it stands for."""

    async def ask() -> Command:
        client = RemotingClient(SystemClock())
        try:
            return await client.invoke(broker, command, TIMEOUT_MS)
        finally:
            await client.close()

    reply = asyncio.run(ask())
    if reply.code != 0:
        raise error_for(reply.code, reply.remark)
    return reply


def _give_up(command: str, error: Exception) -> NoReturn:
    typer.echo(f"firearrow filter {command}: {error}", err=True)
    raise typer.Exit(EXIT_NOT_DONE)
