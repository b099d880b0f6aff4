"""How a function becomes a command: the options that all have, and printing what it returns.

A command is a function of a `Target` and of its own options; it returns what is to be shown. The
decorators add the rest: which cluster (``-n``, ``--context``, ``--timeout``), ``--output``,
``--watch`` for listings, ``--dry-run`` for writes, errors as one line, exit codes.

    @listing(topic_app, "ls")              @change(topic_app, "rm")
    def ls(target, ...) -> Table: ...      def rm(target, name, *, dry_run) -> Effect: ...
"""

from __future__ import annotations

import inspect
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from firearrow.base.errors import ConfigError
from firearrow.cli import exits
from firearrow.cli.output import OutputFormat, Record, Table, print_shown
from firearrow.cli.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.cli.output import Effect, Shown

WATCH_S: Final = 2.0
CLEAR: Final = "\x1b[H\x1b[2J"
EPILOG: Final = (
    "Exit codes: 0 done, 1 something is wrong or was refused, 2 wrong command line, "
    "3 nobody reachable, 4 not there, 130 interrupted."
)

NameServers = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--nameservers",
        help="host:port, several separated by ';'. Else the context, or 127.0.0.1:9876.",
        rich_help_panel="Cluster",
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context", help="A name from `firearrow context ls`.", rich_help_panel="Cluster"
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", help="Seconds for each request.", rich_help_panel="Cluster")
]
Output = Annotated[
    OutputFormat,
    typer.Option(
        "-O", "--output", help="How to print.", case_sensitive=False, rich_help_panel="Output"
    ),
]
Watch = Annotated[
    float | None,
    typer.Option(
        "--watch",
        metavar="[SECONDS]",
        help="Look again every so many seconds (2), until Ctrl-C.",
        rich_help_panel="Output",
    ),
]
Looks = Annotated[
    int | None,
    typer.Option(
        "--looks", min=1, help="With --watch: stop after so many.", rich_help_panel="Output"
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Change nothing; say what would change, in numbers."),
]

_CLUSTER: Final = [
    ("nameservers", NameServers, None),
    ("context", ContextName, None),
    ("timeout", Timeout, 5.0),
]
_OUTPUT: Final = [("output", Output, OutputFormat.TABLE)]
_WATCH: Final = [("watch", Watch, None), ("looks", Looks, None)]
_DRY: Final = [("dry_run", DryRun, False)]


class ListingCommand(TyperCommand):
    """A command whose ``--watch`` need not be followed by a number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's
        return super().parse_args(ctx, with_seconds(args))


def with_seconds(args: list[str]) -> list[str]:
    """``--watch`` with its number, which may have been left out."""
    found: list[str] = []
    for place, word in enumerate(args):
        following = args[place + 1] if place + 1 < len(args) else ""
        bare = word == "--watch" and not following.replace(".", "", 1).isdecimal()
        found.append(f"--watch={WATCH_S:g}" if bare else word)
    return found


def listing(app: typer.Typer, name: str, **options: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    """A command that shows something; it can watch."""

    def decorate(function: Callable[..., Shown]) -> Callable[..., Shown]:
        def run(**given: Any) -> None:  # noqa: ANN401 - the options of the command
            target, form, watch, looks = _taken(app, name, given, "output", "watch", "looks")
            with exits.one_line(_path(app, name)), target:
                if watch is None:
                    _finish(function(target, **given), form)
                    return
                _watched(lambda: function(target, **given), form, watch, looks)

        signed = _signed(run, function, [*_CLUSTER, *_OUTPUT, *_WATCH])
        app.command(name, cls=ListingCommand, epilog=EPILOG, **options)(signed)
        return function

    return decorate


def change(app: typer.Typer, name: str, **options: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    """A command that changes something, or with ``--dry-run`` only says what it would change."""

    def decorate(function: Callable[..., Effect]) -> Callable[..., Effect]:
        def run(**given: Any) -> None:  # noqa: ANN401 - the options of the command
            target, form = _taken(app, name, given, "output")
            with exits.one_line(_path(app, name)), target:
                print_shown(function(target, **given), form, dry_run=given["dry_run"])

        signed = _signed(run, function, [*_DRY, *_CLUSTER, *_OUTPUT])
        app.command(name, epilog=EPILOG, **options)(signed)
        return function

    return decorate


def verb(app: typer.Typer, name: str, **options: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    """Any other command on a cluster: it prints by itself; what it returns is its exit code."""

    def decorate(function: Callable[..., int | None]) -> Callable[..., int | None]:
        def run(**given: Any) -> None:  # noqa: ANN401 - the options of the command
            (target,) = _taken(app, name, given)
            with exits.one_line(_path(app, name)), target:
                code = function(target, **given)
            if code:
                raise typer.Exit(code)

        app.command(name, epilog=EPILOG, **options)(_signed(run, function, _CLUSTER))
        return function

    return decorate


def _path(app: typer.Typer, name: str) -> str:
    family = app.info.name
    return f"{family} {name}" if isinstance(family, str) else name


def _taken(app: typer.Typer, name: str, given: dict[str, Any], *names: str) -> list[Any]:
    """The target that the common options mean, and the values of those that are named."""
    where = [given.pop(option) for option, *_ in _CLUSTER]
    with exits.one_line(_path(app, name)):
        target = Target.resolve(*where)
    return [target, *(given.pop(option) for option in names)]


def _signed(
    run: Callable[..., None],
    function: Callable[..., Any],
    common: list[tuple[str, Any, Any]],
) -> Callable[..., None]:
    """`run` with the options of `function` after its target, and then the common ones."""
    own = list(inspect.signature(function).parameters.values())[1:]
    added = {name for name, *_ in common}
    parameters = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=_evaluated(one.annotation, function),
        )
        for one in own
        if one.name not in added
    ]
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, annotation, default in common
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__doc__ = function.__doc__
    run.__name__ = function.__name__
    return run


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:  # noqa: ANN401
    if isinstance(annotation, str):
        return eval(annotation, function.__globals__)
    return annotation


# --- printing -----------------------------------------------------------------------------------


def _finish(shown: Shown, form: OutputFormat) -> None:
    print_shown(shown, form)
    if isinstance(shown, Record) and shown.wrong:
        raise typer.Exit(exits.FOUND)


def _watched(
    look: Callable[[], Shown], form: OutputFormat, every_s: float, looks: int | None
) -> None:
    """Print again and again; a terminal shows the newest only, a pipe gets one after the other."""
    if not 0 < every_s <= 86_400:
        raise ConfigError(f"--watch {every_s:g}: seconds from above 0 to a day")
    done = 0
    while True:
        shown = look()
        if sys.stdout.isatty():
            sys.stdout.write(CLEAR)
            if isinstance(shown, Table | Record):
                sys.stdout.write(f"{time.strftime('%H:%M:%S')}, every {every_s:g} s\n")
        print_shown(shown, form)
        done += 1
        if done == looks:
            return
        time.sleep(every_s)
