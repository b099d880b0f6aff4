"""How commands end: exit codes, and errors as one line with what to do about them.

0  done, and nothing is wrong
1  the command ran and found something wrong, or a server said no
2  the command line or a setting is wrong; nothing was done
3  nobody could be reached in time
4  what was asked for does not exist: topic, group, message, member
130  interrupted
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer

from firearrow.base.errors import FirearrowError

if TYPE_CHECKING:
    from collections.abc import Iterator

OK: Final = 0
FOUND: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_THERE: Final = 4
INTERRUPTED: Final = 130

# By name, so that starting the command line loads no client.
_CODES: Final = {
    "ConfigError": USAGE,
    "InvalidMessage": USAGE,
    "InvalidName": USAGE,
    "InvalidRequest": USAGE,
    "NoNameServer": USAGE,
    "InvalidParameter": USAGE,
    "NetworkError": UNREACHABLE,
    "SendTimeout": UNREACHABLE,
    "ReplyTimeout": UNREACHABLE,
    "ConsumeMessageTimeout": UNREACHABLE,
    "NoRoute": NOT_THERE,
    "TopicNotFound": NOT_THERE,
    "QueryNotFound": NOT_THERE,
    "BrokerNotFound": NOT_THERE,
    "SubscriptionGroupNotFound": NOT_THERE,
    "ConsumerNotOnline": NOT_THERE,
}


def exit_code_of(error: BaseException) -> int:
    """The exit code that an error leads to."""
    for kind in type(error).__mro__:
        if kind.__name__ in _CODES:
            return _CODES[kind.__name__]
    return USAGE if isinstance(error, OSError | ValueError) else FOUND


def describe(error: BaseException) -> str:
    """One line: what happened, and what to do about it."""
    if isinstance(error, OSError) and not isinstance(error, FirearrowError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}"
    said = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, FirearrowError) or error.remedy == FirearrowError.remedy:
        return said
    ended = said if said[-1:] in ".?!" else f"{said}."
    return f"{ended} {error.remedy} (firearrow explain {type(error).__name__})"


@contextmanager
def one_line(command: str) -> Iterator[None]:
    """Whatever goes wrong inside ends the command with one line and its exit code."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    except (FirearrowError, OSError) as error:
        typer.echo(f"firearrow {command}: {describe(error)}", err=True)
        raise typer.Exit(exit_code_of(error)) from error
