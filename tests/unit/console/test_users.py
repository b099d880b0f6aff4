from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from firearrow.base.errors import ConfigError
from firearrow.console.users import (
    TRIES_OF_ALL,
    TRIES_OF_ONE,
    TRY_EVERY_MS,
    LoginLimiter,
    NotAllowed,
    Role,
    Sessions,
    Users,
    role_of,
)
from firearrow.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "a long password"


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path / "users.json")


def test_a_password_is_kept_as_an_argon2_hash_that_only_the_owner_reads(
    users: Users, tmp_path: Path
) -> None:
    users.add("ann", PASSWORD, Role.OPERATOR)
    path = tmp_path / "users.json"
    text = path.read_text("utf-8")
    assert PASSWORD not in text
    assert json.loads(text)["users"]["ann"]["passwordHash"].startswith("$argon2id$")
    assert path.stat().st_mode & 0o077 == 0


def test_only_the_right_password_opens(users: Users) -> None:
    users.add("ann", PASSWORD, Role.VIEWER)
    found = users.check("ann", PASSWORD)
    assert found is not None
    assert found.role is Role.VIEWER
    assert users.check("ann", PASSWORD + "x") is None
    assert users.check("ann", "") is None
    assert users.check("bob", PASSWORD) is None


def test_the_first_start_makes_an_administrator_once(users: Users) -> None:
    first = users.create_first()
    assert first is not None
    name, password = first
    found = users.check(name, password)
    assert found is not None
    assert found.role is Role.ADMIN
    assert users.create_first() is None


def test_a_change_from_another_process_is_seen(users: Users, tmp_path: Path) -> None:
    users.add("ann", PASSWORD, Role.ADMIN)
    Users(tmp_path / "users.json").add("bob", PASSWORD, Role.VIEWER)
    assert [user.name for user in users.all()] == ["ann", "bob"]


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "<b>"])
def test_odd_names_are_refused(users: Users, name: str) -> None:
    with pytest.raises(ConfigError, match="user name"):
        users.add(name, PASSWORD, Role.VIEWER)


def test_short_passwords_are_refused(users: Users) -> None:
    with pytest.raises(ConfigError, match="at least 10"):
        users.add("ann", "short", Role.VIEWER)


def test_the_last_administrator_stays(users: Users) -> None:
    users.add("ann", PASSWORD, Role.ADMIN)
    users.add("bob", PASSWORD, Role.OPERATOR)
    with pytest.raises(ConfigError, match="last administrator"):
        users.remove("ann")
    with pytest.raises(ConfigError, match="last administrator"):
        users.set_role("ann", Role.VIEWER)
    users.set_role("bob", Role.ADMIN)
    users.remove("ann")
    assert users.get("ann") is None


def test_an_unknown_role_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="viewer, operator, admin"):
        role_of("boss")


def test_a_damaged_file_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text('{"users": 3}')
    with pytest.raises(ConfigError):
        Users(tmp_path / "users.json").all()


# --- sessions ---------------------------------------------------------------------------------


async def test_a_session_ends_when_it_is_closed_or_not_used(users: Users) -> None:
    users.add("ann", PASSWORD, Role.ADMIN)
    clock = ManualClock()
    sessions = Sessions(users, clock, idle_ms=1_000)
    visitor = sessions.open("ann", "127.0.0.1")
    assert sessions.find(visitor.token) is visitor
    await clock.advance(900)
    assert sessions.find(visitor.token) is visitor
    await clock.advance(1_001)
    assert sessions.find(visitor.token) is None
    other = sessions.open("ann", "127.0.0.1")
    sessions.close(other.token)
    assert sessions.find(other.token) is None
    assert sessions.find(None) is None


def test_a_role_counts_as_it_is_now(users: Users) -> None:
    users.add("ann", PASSWORD, Role.ADMIN)
    users.add("bob", PASSWORD, Role.OPERATOR)
    sessions = Sessions(users, ManualClock(), idle_ms=1_000)
    visitor = sessions.open("bob", "127.0.0.1")
    sessions.need(visitor, Role.OPERATOR)
    users.set_role("bob", Role.VIEWER)
    with pytest.raises(NotAllowed, match="needs the role operator"):
        sessions.need(visitor, Role.OPERATOR)
    users.remove("bob")
    with pytest.raises(NotAllowed, match="not logged in"):
        sessions.need(visitor, Role.VIEWER)


# --- guessing ---------------------------------------------------------------------------------


async def test_whoever_guesses_must_wait_and_others_need_not() -> None:
    clock = ManualClock()
    limiter = LoginLimiter(clock)
    for _ in range(TRIES_OF_ONE):
        assert limiter.wait_ms("evil") == 0
        limiter.failed("evil")
    assert limiter.wait_ms("evil") > 0
    assert limiter.wait_ms("good") == 0
    await clock.advance(TRY_EVERY_MS + 1)
    assert limiter.wait_ms("evil") == 0


def test_many_addresses_together_must_wait_as_well() -> None:
    limiter = LoginLimiter(ManualClock())
    for number in range(TRIES_OF_ALL):
        limiter.failed(f"10.0.0.{number}")
    assert limiter.wait_ms("somebody new") > 0
