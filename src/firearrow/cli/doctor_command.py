"""`firearrow doctor`: find what is wrong here, with remedies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from firearrow.base.errors import ConfigError
from firearrow.cli import exits
from firearrow.cli.doctor import Plan, State, examine, look_at_cluster
from firearrow.cli.machine import RealMachine
from firearrow.cli.output import OutputFormat, Table, print_shown, text
from firearrow.cli.target import Target
from firearrow.cli.verbs import EPILOG, ContextName, NameServers, Output, Timeout

app = typer.Typer(name="doctor", rich_markup_mode="rich")


def machine() -> RealMachine:
    """The machine that is looked at; tests put another here."""
    return RealMachine()


@app.command("doctor", epilog=EPILOG)
def doctor(
    *,
    data: Annotated[Path, typer.Option(help="Where a broker would keep its files.")] = Path(
        "firearrow-data"
    ),
    host: Annotated[str, typer.Option(help="Where servers would listen.")] = "127.0.0.1",
    port: Annotated[
        list[str] | None,
        typer.Option("--port", help="ROLE=PORT to look at; repeatable. Else 9876 and 10911."),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Look for Java.")] = True,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only what is wrong.")] = False,
    nameservers: NameServers = None,
    context: ContextName = None,
    timeout: Timeout = 3.0,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Find what is wrong with this machine and the cluster, with remedies.

    Disk space, file limit, ports, Java; name servers that answer and agree, brokers that are where
    they say they are, their clocks and disks. The exit code is 1 if anything is wrong.

    [bold]Examples[/bold]

      firearrow doctor

      firearrow doctor -n 10.0.0.1:9876 --data /var/lib/firearrow

      firearrow doctor --port broker=10911 --quiet --output json
    """
    with exits.one_line("doctor"):
        plan = Plan(data=data, host=host, wants_spark=spark)
        if port:
            plan = replace(plan, ports=_ports(port))
        here = machine()
        with Target.resolve(nameservers, context, timeout) as target:
            view = look_at_cluster(target, here)
        found = examine(here, plan, view)
        wrong = [one for one in found if one.state is State.WRONG]
        rows = [
            [one.state, one.check, one.what, one.remedy]
            for one in sorted(found, key=lambda one: one.state is not State.WRONG)
            if not quiet or one.state is State.WRONG
        ]
        table = Table(text("state", "check", "what", "remedy"), rows)
        table.notes.append(f"{len(wrong)} of {len(found)} checks found something wrong")
        print_shown(table, output)
    if wrong:
        raise typer.Exit(exits.FOUND)


def _ports(given: list[str]) -> tuple[tuple[str, int], ...]:
    found = []
    for one in given:
        role, _, number = one.rpartition("=")
        if not number.isdecimal() or not 0 < int(number) < 65_536:
            raise ConfigError(f"--port {one!r}: ROLE=PORT expected, as broker=10911")
        found.append((role or "server", int(number)))
    return tuple(found)
