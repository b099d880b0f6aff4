"""Every write, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from firearrow.console.data.paging import Page, Query, page_of
from firearrow.console.view import moment
from firearrow.console.widgets import PagedTable, column, heading

if TYPE_CHECKING:
    from firearrow.console.audit import Entry
    from firearrow.console.view import View

_COLORS: Final = {"done": "positive", "refused": "orange-9", "failed": "negative"}


async def build(view: View) -> None:
    t = view.t
    heading(t("page.audit"), str(view.state.settings.audit_file))

    async def fetch(query: Query) -> Page[Entry]:
        # Entries come newest first; the order is the list's own.
        plain = Query(kind=query.kind, page=query.page, size=query.size)
        return page_of(
            view.state.audit.newest(query.text),
            plain,
            text=lambda _: "",
            kind=lambda entry: entry.outcome,
        )

    table: PagedTable[Entry] = PagedTable(
        view,
        [
            column("at", t("time"), mono=True),
            column("user", t("users.name")),
            column("address", t("address"), mono=True),
            column("action", t("audit.action"), mono=True),
            column("target", t("audit.target")),
            column("outcome", t("audit.outcome")),
            column("details", t("audit.details"), mono=True),
        ],
        fetch,
        lambda entry: entry_row(view, entry),
        key="id",
        badges=["outcome"],
        kinds={word: t(f"outcome.{word}") for word in _COLORS},
        marker="audit",
    )
    table.table.props("wrap-cells")
    await table.refresh()


def entry_row(view: View, entry: Entry) -> dict[str, Any]:
    return {
        "id": f"{entry.at_ms} {entry.user} {entry.action} {entry.target} {entry.details}",
        "at": moment(entry.at_ms),
        "user": entry.user,
        "address": entry.address,
        "action": entry.action,
        "target": entry.target,
        "details": entry.details,
        "outcome": view.t(f"outcome.{entry.outcome}"),
        "outcome_color": _COLORS.get(entry.outcome, "blue-grey"),
    }
