"""`firearrow context`: name clusters, and choose the one that commands are about."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from firearrow.base.errors import ConfigError
from firearrow.cli import completing, exits
from firearrow.cli.contexts import Context, ContextFile, check_name, check_nameservers
from firearrow.cli.output import Effect, OutputFormat, Table, print_shown, text
from firearrow.cli.verbs import EPILOG, DryRun, Output

app = typer.Typer(
    name="context",
    help="Name clusters, and choose the one that commands are about.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Name = Annotated[str, typer.Argument(help="Of the context.", autocompletion=completing.contexts)]


@app.command("add", epilog=EPILOG)
def add(
    *,
    name: Name,
    nameservers: Annotated[str, typer.Argument(help="host:port, several separated by ';'.")],
    description: Annotated[str, typer.Option("--description")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", help="Prefix of topics and groups.")
    ] = "",
    use: Annotated[bool, typer.Option("--use", help="Choose it at once.")] = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Add a context, or change one. The first one is chosen at once.

    [bold]Examples[/bold]

      firearrow context add local 127.0.0.1:9876

      firearrow context add production '10.0.0.1:9876;10.0.0.2:9876' --use
    """
    with exits.one_line("context add"):
        file = ContextFile()
        known = file.load()
        one = Context(
            nameservers=check_nameservers(nameservers),
            description=description,
            namespace=namespace,
        )
        current = check_name(name) if use or known.current is None else known.current
        words = f"context {name}: {one.nameservers}"
        new = name not in known.contexts
        if not dry_run:
            file.save(
                msgspec.structs.replace(
                    known, current=current, contexts=known.contexts | {name: one}
                )
            )
        verb = "add" if new else "change"
        effect = Effect(
            would=f"{verb} {words}",
            did=f"{'added' if new else 'changed'} {words}",
            numbers={"name": name, "nameservers": one.nameservers, "new": new},
        )
        print_shown(effect, output, dry_run=dry_run)


@app.command("ls", epilog=EPILOG)
def ls(*, output: Output = OutputFormat.TABLE) -> None:
    """List contexts; the one in use has a star.

    [bold]Examples[/bold]

      firearrow context ls
    """
    with exits.one_line("context ls"):
        known = ContextFile().load()
        rows = [
            [
                "*" if name == known.current else "",
                name,
                one.nameservers,
                one.namespace,
                one.description,
            ]
            for name, one in sorted(known.contexts.items())
        ]
        columns = text("used", "name", "nameservers", "namespace", "description")
        print_shown(Table(columns, rows), output)


@app.command("use", epilog=EPILOG)
def use_command(*, name: Name, dry_run: DryRun = False) -> None:
    """Choose the context that commands are about from now on.

    [bold]Examples[/bold]

      firearrow context use production
    """
    with exits.one_line("context use"):
        file = ContextFile()
        where = file.named(name, "context use")
        if not dry_run:
            file.save(msgspec.structs.replace(file.load(), current=name))
        words = f"context {name}: {where.nameservers}"
        print_shown(
            Effect(would=f"use {words}", did=f"using {words}"), OutputFormat.TABLE, dry_run=dry_run
        )


@app.command("rm", epilog=EPILOG)
def rm(*, name: Name, dry_run: DryRun = False) -> None:
    """Remove a context.

    [bold]Examples[/bold]

      firearrow context rm production
    """
    with exits.one_line("context rm"):
        file = ContextFile()
        known = file.load()
        if name not in known.contexts:
            raise ConfigError(f"there is no context {name}; see: firearrow context ls")
        left = {key: one for key, one in known.contexts.items() if key != name}
        current = None if known.current == name else known.current
        if not dry_run:
            file.save(msgspec.structs.replace(known, current=current, contexts=left))
        words = f"context {name}; {len(left)} are left"
        print_shown(
            Effect(would=f"remove {words}", did=f"removed {words}"),
            OutputFormat.TABLE,
            dry_run=dry_run,
        )


@app.command("show", epilog=EPILOG)
def show(
    *,
    nameservers: Annotated[str | None, typer.Option("-n", "--nameservers")] = None,
    context: Annotated[str | None, typer.Option("--context")] = None,
) -> None:
    """Say which name servers a command would ask, and who says so.

    [bold]Examples[/bold]

      firearrow context show
    """
    with exits.one_line("context show"):
        where = ContextFile().resolve(nameservers, context)
        typer.echo(f"{where.nameservers} ({where.source})")
