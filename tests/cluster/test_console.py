"""The console without a browser: its door over HTTP, its writes, and the process beside `up`."""

from __future__ import annotations

import asyncio
import http.client
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlencode, urlsplit

import pytest
from tests.support import PATIENCE_S, running_broker
from typer.testing import CliRunner

from firearrow.aio import Message, Producer
from firearrow.cli.console_commands import console_app
from firearrow.client.admin_waiting import ha_status, open_transactions, timer_counts
from firearrow.client.message import ReceivedMessage
from firearrow.console.actions import RIGHTS, Actions
from firearrow.console.data import messages as finding
from firearrow.console.data.bodies import MASK
from firearrow.console.data.groups import group_detail, matrices
from firearrow.console.data.lifeline import lifeline
from firearrow.console.data.paging import Query
from firearrow.console.settings import ConsoleSettings
from firearrow.console.state import ConsoleState
from firearrow.console.users import NotAllowed, Role
from firearrow.model.errors import QueryNotFound, SubscriptionGroupNotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from firearrow.console.users import Visitor

PASSWORD: Final = "a long password"


# --- reading and writing, in process ----------------------------------------------------------


class Desk:
    """A console's state over a real broker, and a visitor of each role."""

    def __init__(self, state: ConsoleState) -> None:
        self.state = state
        self.actions = Actions(state)
        self.visitors: dict[Role, Visitor] = {}
        for role in Role:
            state.users.add(role.word, PASSWORD, role)
            self.visitors[role] = state.sessions.open(role.word, "test")

    async def __aenter__(self) -> Self:
        await self.state.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.state.stop()


def desk(nameservers: str, folder: Path) -> Desk:
    return Desk(ConsoleState(ConsoleSettings(nameservers=nameservers, folder=folder)))


async def test_what_an_operator_does_happens_and_is_written_down(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "store", recall_message_enable=True) as served,
        desk(served.nameserver.address, tmp_path) as one,
    ):
        who, actions, admin = one.visitors[Role.OPERATOR], one.actions, one.state.admin
        await actions.create_topic(who, "orders", queues=2, perm=6, kind="FIFO", order=False)
        page = await one.state.catalog.topic_page(Query(text="ord"))
        assert [(row.name, row.kind, row.write_queues) for row in page.rows] == [
            ("orders", "fifo", 2)
        ]
        await actions.update_topic(who, "orders", read_queues=3, write_queues=3, perm=6)
        await actions.send(who, "orders", "hello", tags="t", keys="k1 k2", delay_s=0)
        await actions.send(who, "orders", "later", tags="", keys="", delay_s=3_600)
        (found,) = (await finding.by_key(admin, "orders", "k2")).messages
        assert (found.body, found.tags) == (b"hello", "t")
        again = await actions.resend(who, found)
        copy = await admin.message_by_id(again.offset_msg_id)
        assert (copy.body, copy.keys, copy.msg_id != found.msg_id) == (b"hello", ("k1", "k2"), True)
        await actions.create_group(who, "billing", retry_max=3)
        plan = await actions.preview_reset("billing", "orders", "earliest")
        assert (plan.again, plan.skipped) == (0, 0)
        await actions.reset(who, "billing", "orders", "latest")
        row = (await one.state.catalog.groups(fresh=True)).by_name["billing"]
        assert (row.lag, row.retry_max) == (0, 3)
        assert [entry.action for entry in one.state.audit.newest()][::-1] == [
            "topic.create",
            "topic.update",
            "message.send",
            "message.send",
            "message.resend",
            "group.create",
            "group.reset",
        ]
        assert {entry.outcome for entry in one.state.audit.newest()} == {"done"}


async def test_every_write_is_refused_to_who_may_not_and_that_is_written_down(
    tmp_path: Path,
) -> None:
    message = ReceivedMessage.__new__(ReceivedMessage)  # never looked into
    message.topic, message._properties = "orders", {"UNIQ_KEY": "x"}  # noqa: SLF001
    calls: dict[str, Callable[[Actions, Visitor], Awaitable[Any]]] = {
        "topic.create": lambda a, w: a.create_topic(
            w, "t", queues=1, perm=6, kind="NORMAL", order=False
        ),
        "topic.update": lambda a, w: a.update_topic(w, "t", read_queues=1, write_queues=1, perm=6),
        "topic.delete": lambda a, w: a.delete_topic(w, "t"),
        "group.create": lambda a, w: a.create_group(w, "g", retry_max=1),
        "group.delete": lambda a, w: a.delete_group(w, "g"),
        "group.reset": lambda a, w: a.reset(w, "g", "t", "latest"),
        "message.send": lambda a, w: a.send(w, "t", "", tags="", keys="", delay_s=0),
        "message.resend": lambda a, w: a.resend(w, message),
        "message.recall": lambda a, w: a.recall(w, "t", "h", "id"),
        "dlq.resend": lambda a, w: a.resend_dead(w, "g", []),
        "dlq.export": lambda a, w: a.note_export(w, "g", 1),
        "broker.config": lambda a, w: a.set_broker(w, "b", "k", "v"),
        "user.add": lambda a, w: a.add_user(w, "new", PASSWORD, "admin"),
        "user.role": lambda a, w: a.set_role(w, "viewer", "admin"),
        "user.password": lambda a, w: a.set_password(w, "admin", PASSWORD),
        "user.remove": lambda a, w: a.remove_user(w, "admin"),
    }
    assert calls.keys() == RIGHTS.keys() - {"body.view"}
    one = desk("127.0.0.1:1", tmp_path)  # nobody is asked: there need be no cluster
    refused = 0
    for action, call in calls.items():
        for role, visitor in one.visitors.items():
            if role < RIGHTS[action]:
                with pytest.raises(NotAllowed):
                    await call(one.actions, visitor)
                refused += 1
                assert one.state.audit.newest()[0].action == action
                assert one.state.audit.newest()[0].outcome == "refused"
    assert len(one.state.audit.newest()) == refused > 20
    one.state.sessions.close(one.visitors[Role.ADMIN].token)
    with pytest.raises(NotAllowed, match="not logged in"):
        await one.actions.delete_topic(one.visitors[Role.ADMIN], "t")
    await one.state.admin.close()


async def test_a_write_that_fails_is_written_down_as_failed(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "store") as served,
        desk(served.nameserver.address, tmp_path) as one,
    ):
        with pytest.raises(QueryNotFound):
            await finding.by_id(one.state.admin, "7F0000010000AF7B0000000000000767", "")
        with pytest.raises(Exception, match="system topic"):
            await one.actions.create_topic(
                one.visitors[Role.ADMIN], "TBW102", queues=1, perm=6, kind="NORMAL", order=False
            )
        assert one.state.audit.newest()[0].outcome == "failed"


async def test_messages_are_found_by_time_and_tag_followed_and_exported(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "store") as served,
        desk(served.nameserver.address, tmp_path) as one,
        Producer("shop", nameservers=served.nameserver.address) as producer,
    ):
        admin = one.state.admin
        await admin.create_topic("orders", queues=2)
        for number in range(10):
            tag = "odd" if number % 2 else "even"
            await producer.send(Message("orders", f"=order {number}", tags=tag))
        all_time = (0, one.state.clock.now_ms() + 60_000)
        found = await finding.by_time(admin, "orders", *all_time, tag="odd")
        assert sorted(one.text for one in found.messages) == [
            f"=order {n}" for n in range(1, 10, 2)
        ]
        assert found.complete
        cut = await finding.by_time(admin, "orders", *all_time, limit=3)
        assert ([message.text for message in cut.messages], cut.complete) == (
            ["=order 0", "=order 1", "=order 2"],  # the oldest, whichever queue has them
            False,
        )
        tail = finding.Tail(admin, "orders")
        await tail.begin()
        assert await tail.more() == []
        await producer.send(Message("orders", "new"))
        assert [message.text for message in await tail.more()] == ["new"]
        assert await tail.more() == []
        assert b"'=order 1" in finding.export_csv(found.messages, may_see=True)
        hidden = finding.export_json(found.messages, may_see=False).decode()
        assert MASK in hidden
        assert "=order" not in hidden
        events, traced = await lifeline(admin, found.messages[0])
        assert [event.key for event in events] == ["life.born", "life.stored"]
        assert not traced


async def test_what_waits_is_counted_and_a_master_alone_has_no_replicas(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "store") as served,
        desk(served.nameserver.address, tmp_path) as one,
        Producer("shop", nameservers=served.nameserver.address) as producer,
    ):
        admin = one.state.admin
        await producer.send(Message("orders", "later", delay_ms=3_600_000))
        while not await timer_counts(admin):  # noqa: ASYNC110 - the timer takes it up by itself
            await asyncio.sleep(0.01)
        assert await timer_counts(admin) == {"orders": 1}
        assert [found.total for found in await open_transactions(admin)] == [0]
        status = await ha_status(admin, served.broker.address)
        assert (status.master, status.ha_connection_info) == (True, ())
        await admin.create_group("idle")
        detail = await group_detail(admin, "idle")
        assert (detail.members, matrices(detail)) == ((), [])
        with pytest.raises(SubscriptionGroupNotFound):
            await group_detail(admin, "nobody")


# --- processes --------------------------------------------------------------------------------


class Started:
    """A command of ours in a process of its own, up to its first line."""

    def __init__(self, folder: Path, *words: str, **options: Any) -> None:
        self.log = folder / "stderr"
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "firearrow", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                **options,
            )
        assert self.popen.stdout is not None
        self.line = self.popen.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(PATIENCE_S)
        finally:
            self.popen.kill()
            self.popen.communicate()


def ask(
    url: str, method: str, path: str, form: dict[str, str] | None = None, cookie: str = ""
) -> tuple[int, dict[str, str], str]:
    where = urlsplit(url)
    assert where.hostname is not None
    link = http.client.HTTPConnection(where.hostname, where.port, timeout=PATIENCE_S)
    try:
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if form else {}
        link.request(method, path, urlencode(form) if form else None, headers | {"Cookie": cookie})
        answer = link.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        link.close()


def is_gone(url: str) -> bool:
    where = urlsplit(url)
    try:
        socket.create_connection((where.hostname or "", where.port or 0), 1).close()
    except OSError:
        return True
    return False


def until(true: Callable[[], bool]) -> None:
    async def wait() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():  # noqa: ASYNC110 - what is waited for is another process
                await asyncio.sleep(0.02)

    asyncio.run(wait())


def test_the_door_opens_for_the_first_user_and_for_nobody_else(tmp_path: Path) -> None:
    words = ["console", "--port", "0", "--data", str(tmp_path / "c"), "-n", "127.0.0.1:1"]
    with Started(tmp_path, *words) as started:
        (url,) = re.findall(r"^console ready on (http://127\.0\.0\.1:\d+)\n$", started.line)
        until(lambda: "password" in started.log.read_text())
        (password,) = re.findall(r"User admin, password (\S+) \(it is not", started.log.read_text())
        status, headers, _ = ask(url, "GET", "/topics?x=1")
        assert (status, headers["location"]) == (303, "/login?next=%2Ftopics%3Fx%3D1")
        assert headers["x-frame-options"] == "DENY"
        right = {"name": "admin", "password": password, "next": "//evil.example/"}
        status, headers, _ = ask(url, "POST", "/login", right)
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        cookie = cookie.partition(";")[0]
        status, _, page = ask(url, "GET", "/", cookie=cookie)
        assert status == 200
        assert "does not answer" in page  # there is no cluster, and the page says so
        assert ask(url, "GET", "/", cookie="firearrow_console=guess")[0] == 303
        assert ask(url, "POST", "/logout", {"x": ""}, cookie)[0] == 303
        assert ask(url, "GET", "/", cookie=cookie)[0] == 303
        wrong = {"name": "admin", "password": "wrong"}
        answers = [ask(url, "POST", "/login", wrong)[0] for _ in range(6)]
        assert answers == [401, 401, 401, 401, 401, 429]
        assert ask(url, "POST", "/login", right)[0] == 429  # also with the right one
        assert ask(url, "POST", "/login", {"name": "x" * 20_000})[0] == 400


def test_up_starts_a_console_that_ends_with_it_even_when_it_is_killed(tmp_path: Path) -> None:
    words = ["up", "--nameserver-port", "0", "--broker-port", "0", "--console-port", "0"]
    with Started(tmp_path, *words) as started:
        found = re.fullmatch(
            r"ready: name server \S+, broker [^,]+, console (http://\S+)\n", started.line
        )
        assert found is not None, started.line + started.log.read_text()
        assert ask(found[1], "GET", "/login")[0] == 200
        started.popen.send_signal(signal.SIGKILL)
        until(lambda: is_gone(found[1]))


def test_up_does_without_a_console_when_its_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["up", "--nameserver-port", "0", "--broker-port", "0", "--console-port", port]
        with Started(tmp_path, *words) as started:
            assert re.fullmatch(r"ready: name server \S+, broker [^,]+\n", started.line)
            until(lambda: "no console:" in started.log.read_text())
            assert port in started.log.read_text()


def test_users_are_kept_by_command(tmp_path: Path) -> None:
    def run(*words: str, password: str = "") -> tuple[int, str]:
        done = CliRunner().invoke(
            console_app, ["--data", str(tmp_path), "user", *words], input=password
        )
        return done.exit_code, done.output

    code, said = run("add", "ann", "--role", "admin", "--password-stdin", password=PASSWORD + "\n")
    assert (code, said) == (0, "user ann (admin) added\n")
    code, said = run("add", "bob", "--role", "boss", "--password-stdin", password=PASSWORD + "\n")
    assert code == 2
    assert "viewer, operator, admin" in said
    assert run("passwd", "ann", "--password-stdin", password="another password\n")[0] == 0
    assert run("ls") == (0, "ann\tadmin\n")
    assert run("rm", "ann")[0] == 2  # the last administrator


def test_an_open_address_needs_a_decision(tmp_path: Path) -> None:
    words = ["--host", "0.0.0.0", "--port", "0", "--data", str(tmp_path)]
    done = CliRunner().invoke(console_app, words)
    assert done.exit_code == 2
    assert "--insecure" in done.output
