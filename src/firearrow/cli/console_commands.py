"""`firearrow console`: the web pages, and their users."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from firearrow.base.errors import ConfigError
from firearrow.base.telemetry import set_up_logging
from firearrow.console.listening import listen, url_of
from firearrow.console.settings import DEFAULT_FOLDER, DEFAULT_PORT, ConsoleSettings

if TYPE_CHECKING:
    from firearrow.console.users import Users

MISSING: Final = "NiceGUI is not installed: pip install 'firearrow[console]'"

console_app = typer.Typer(
    help="Web pages over a cluster: look, search, repair.",
    invoke_without_command=True,
    no_args_is_help=False,
    rich_markup_mode="rich",
)
user_app = typer.Typer(help="Users of the console.", no_args_is_help=True)
console_app.add_typer(user_app, name="user")

_Data = Annotated[Path, typer.Option(help="Where users and the audit list are kept.")]


def is_installed() -> bool:
    """Whether the pages can be served; they need the extra `console`."""
    return all(importlib.util.find_spec(name) is not None for name in ("nicegui", "argon2"))


@console_app.callback()
def console(  # noqa: PLR0917 - options, all of them named on the command line
    context: typer.Context,
    port: Annotated[
        int, typer.Option("-p", "--port", help="Port; 0 takes a free one.")
    ] = DEFAULT_PORT,
    nameservers: Annotated[
        str | None,
        typer.Option("-n", "--nameservers", help="host:port, several separated by ';'."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    data: _Data = DEFAULT_FOLDER,
    project: Annotated[
        list[Path] | None,
        typer.Option(help="Folder with Spark pipelines to show; repeatable. Else this one."),
    ] = None,
    insecure: Annotated[  # noqa: FBT002
        bool, typer.Option("--insecure", help="Allow an address other machines can reach.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "WARNING",
    listen_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve web pages over a cluster until SIGTERM or Ctrl-C.

    The first start makes a user `admin` and prints the password once.

    [bold]Examples[/bold]

      firearrow console -n 127.0.0.1:9876

      firearrow console --port 0 --data /var/lib/firearrow/console

      firearrow console user add ann --role operator
    """
    if context.invoked_subcommand is not None:
        context.obj = data
        return
    try:
        set_up_logging(log_level)
        if not is_installed():
            raise ConfigError(MISSING)  # noqa: TRY301 - told like every other one
        settings = ConsoleSettings(
            nameservers=nameservers or os.environ.get("NAMESRV_ADDR") or "127.0.0.1:9876",
            host=host,
            port=port,
            folder=data,
            insecure=insecure,
            projects=tuple(project or [Path()]),
        )
        settings.check()
        from firearrow.console.app import run  # noqa: PLC0415 - NiceGUI is large

        owned = listen_fd is not None
        sock = socket.socket(fileno=listen_fd) if owned else listen(host, port)
        if not owned:
            typer.echo(f"console ready on {url_of(sock)}")
            sys.stdout.flush()
        run(settings, sock, watch_stdin=owned)
    except ConfigError as error:
        typer.echo(f"firearrow console: {error}", err=True)
        raise typer.Exit(2) from error


# --- users ------------------------------------------------------------------------------------


def _users(context: typer.Context) -> Users:
    if not is_installed():
        typer.echo(f"firearrow console: {MISSING}", err=True)
        raise typer.Exit(2)
    from firearrow.console.users import Users  # noqa: PLC0415 - argon2 may not be installed

    assert isinstance(context.obj, Path)
    return Users(ConsoleSettings(nameservers="", folder=context.obj).users_file)


def _password(given: str | None) -> str:
    """From the option's file, or asked for; never from the command line, which others can read."""
    if given == "-":
        return sys.stdin.readline().rstrip("\n")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))


_PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]


_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Change nothing; say what would change, in numbers.")
]


@user_app.command("add")
def add_user(
    context: typer.Context,
    name: str,
    role: Annotated[str, typer.Option(help="viewer, operator or admin.")] = "viewer",
    password_stdin: _PasswordStdin = False,  # noqa: FBT002
    dry_run: _DryRun = False,  # noqa: FBT002
) -> None:
    """Add a user; the password is asked for.

    [bold]Examples[/bold]

      firearrow console user add alice --role operator

      firearrow console user add alice --dry-run
    """
    from firearrow.console.users import role_of  # noqa: PLC0415 - argon2 may not be installed

    users = _users(context)
    try:
        chosen = role_of(role)
        if dry_run:
            typer.echo(f"would add user {name} ({chosen.word}) to {len(users.all())} others")
            return
        users.add(name, _password("-" if password_stdin else None), chosen)
    except ConfigError as error:
        typer.echo(f"firearrow console: {error}", err=True)
        raise typer.Exit(2) from error
    typer.echo(f"user {name} ({chosen.word}) added")


@user_app.command("passwd")
def change_password(
    context: typer.Context,
    name: str,
    password_stdin: _PasswordStdin = False,  # noqa: FBT002
) -> None:
    """Give a user another password.

    [bold]Example[/bold]

      firearrow console user passwd alice
    """
    users = _users(context)
    try:
        users.set_password(name, _password("-" if password_stdin else None))
    except ConfigError as error:
        typer.echo(f"firearrow console: {error}", err=True)
        raise typer.Exit(2) from error
    typer.echo(f"password of {name} changed")


@user_app.command("rm")
def remove_user(
    context: typer.Context,
    name: str,
    dry_run: _DryRun = False,  # noqa: FBT002
) -> None:
    """Remove a user.

    [bold]Examples[/bold]

      firearrow console user rm alice

      firearrow console user rm alice --dry-run
    """
    users = _users(context)
    if dry_run:
        known = sum(user.name == name for user in users.all())
        typer.echo(f"would remove {known} of {len(users.all())} users")
        return
    try:
        users.remove(name)
    except ConfigError as error:
        typer.echo(f"firearrow console: {error}", err=True)
        raise typer.Exit(2) from error
    typer.echo(f"user {name} removed")


@user_app.command("ls")
def list_users(context: typer.Context) -> None:
    """List users and roles.

    [bold]Example[/bold]

      firearrow console user ls
    """
    for user in _users(context).all():
        typer.echo(f"{user.name}\t{user.role.word}")
