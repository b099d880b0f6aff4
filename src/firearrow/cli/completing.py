"""Names that a shell completes: topics, groups, contexts. A slow cluster completes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer  # noqa: TC002 - typer reads annotations

from firearrow.base.errors import FirearrowError
from firearrow.cli.contexts import ContextFile
from firearrow.cli.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from firearrow.client.blocking_admin import Admin

PATIENCE_S: Final = 1.0
SHOWN_MAX: Final = 200  # nobody reads more


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, lambda admin: admin.topics())


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, lambda admin: admin.groups())


def brokers(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, lambda admin: admin.clusters().broker_addr_table)


def contexts(incomplete: str) -> list[str]:
    try:
        found = ContextFile().load().contexts
    except FirearrowError:
        return []
    return [name for name in sorted(found) if name.startswith(incomplete)]


def _names(ctx: typer.Context, incomplete: str, ask: Callable[[Admin], Iterable[str]]) -> list[str]:
    given: dict[str, Any] = ctx.params
    try:
        with Target.resolve(given.get("nameservers"), given.get("context"), PATIENCE_S) as target:
            found = sorted(name for name in ask(target.admin) if name.startswith(incomplete))
    except (FirearrowError, OSError):
        return []
    return found[:SHOWN_MAX]
