"""Users of the console; what brokers say of access control of their own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from firearrow.base.errors import FirearrowError
from firearrow.console.users import Role
from firearrow.console.widgets import (
    action_button,
    ask,
    column,
    heading,
    nothing,
    plain_table,
    section,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from firearrow.console.view import View

# Settings of brokers that say whether they ask who somebody is.
ACL_KEYS: Final = ("authenticationEnabled", "authorizationEnabled", "aclEnable")


async def build(view: View) -> None:
    t = view.t
    heading(t("page.users"))
    ui.label(t("users.roles")).classes("text-caption fa-quiet")
    buttons = ui.row().classes("gap-2")
    table = plain_table(
        [column("name", t("users.name")), column("role", t("users.role"))],
        [
            {"name": user.name, "role": t(f"role.{user.role.word}"), "word": user.role.word}
            for user in view.state.users.all()
        ],
        badges=["role"],
        marker="users",
    ).props("selection=single")
    with buttons:
        action_button(t("users.add"), "person_add", lambda: add(view), marker="user-add")
        for name, icon, edit in (
            ("role", "badge", change_role),
            ("password", "key", change_password),
            ("remove", "delete", remove),
        ):
            action_button(
                t(f"users.{name}"),
                icon,
                partial(with_chosen, view, table, edit),
                marker=f"user-{name}",
                color="negative" if name == "remove" else "secondary",
            )
    await _brokers(view)


def with_chosen(view: View, table: ui.table, edit: Callable[[View, dict[str, Any]], None]) -> None:
    if table.selected:
        edit(view, table.selected[0])
    else:
        ui.notify(view.t("users.choose"), type="warning")


async def _brokers(view: View) -> None:
    t = view.t
    section(t("users.acl"))
    rows = []
    for broker in await view.state.brokers.get():
        try:
            config = await view.state.admin.broker_config(broker.address)
        except FirearrowError:
            continue
        said = {key: config[key] for key in ACL_KEYS if key in config}
        text = ", ".join(f"{key}={value}" for key, value in said.items()) or t("users.no_acl")
        rows.append({"name": f"{broker.name}:{broker.broker_id}", "acl": text})
    if not rows:
        nothing(t("health.no_broker"))
        return
    plain_table([column("name", t("broker")), column("acl", t("users.acl"))], rows, marker="acl")


def _dialog(
    view: View, title: str, save: Callable[[], Awaitable[object]], *fields: Callable[[], object]
) -> None:
    t = view.t
    with ui.dialog() as dialog, ui.card().classes("min-w-[24rem]"):
        ui.label(title).classes("text-h6")
        for field in fields:
            field()

        async def go() -> None:
            if await view.told(save()):
                ui.navigate.reload()

        with ui.row().classes("w-full justify-end"):
            ui.button(t("cancel"), on_click=dialog.close).props("flat")
            ui.button(t("save"), on_click=go).props("data-test=save")
    dialog.open()


class _Form:
    """What is typed into a dialog."""

    def __init__(self, view: View, role: str = Role.VIEWER.word) -> None:
        self._view = view
        self.name = self.password = ""
        self.role = role

    def ask_name(self) -> None:
        field = ui.input(self._view.t("users.name")).bind_value(self, "name")
        field.classes("w-full").props("data-test=user-name autocomplete=off")

    def ask_password(self) -> None:
        field = ui.input(self._view.t("login.password"), password=True).bind_value(self, "password")
        field.classes("w-full").props("data-test=user-secret autocomplete=new-password")

    def ask_role(self) -> None:
        words = {role.word: self._view.t(f"role.{role.word}") for role in Role}
        field = ui.select(words, label=self._view.t("users.role")).bind_value(self, "role")
        field.classes("w-full").props("data-test=user-role-choice")


def add(view: View) -> None:
    form = _Form(view)
    _dialog(
        view,
        view.t("users.add"),
        lambda: view.actions.add_user(view.who, form.name.strip(), form.password, form.role),
        form.ask_name,
        form.ask_password,
        form.ask_role,
    )


def change_role(view: View, row: dict[str, Any]) -> None:
    form = _Form(view, str(row["word"]))
    _dialog(
        view,
        f"{view.t('users.role')}: {row['name']}",
        lambda: view.actions.set_role(view.who, str(row["name"]), form.role),
        form.ask_role,
    )


def change_password(view: View, row: dict[str, Any]) -> None:
    form = _Form(view)
    _dialog(
        view,
        f"{view.t('users.password')}: {row['name']}",
        lambda: view.actions.set_password(view.who, str(row["name"]), form.password),
        form.ask_password,
    )


def remove(view: View, row: dict[str, Any]) -> None:
    async def do() -> None:
        if await view.told(view.actions.remove_user(view.who, str(row["name"]))):
            ui.navigate.reload()

    ask(view, f"{view.t('users.remove')}: {row['name']}", [], do)
