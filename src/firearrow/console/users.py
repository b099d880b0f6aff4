"""Who may use the console: names, argon2 hashes and roles in one file; sessions in memory."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from firearrow.base.errors import ConfigError, FirearrowError
from firearrow.base.files import load_with_backup, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.base.runtime import Clock

PASSWORD_CHARS_MIN: Final = 10
PASSWORD_CHARS_MAX: Final = 1_000
USERS_MAX: Final = 1_000
SESSIONS_MAX: Final = 10_000
NAME: Final = re.compile(r"[\w.@-]{1,64}")
# Failed logins of one address, and of all, before it has to wait; then a try every so often.
TRIES_OF_ONE: Final = 5
TRIES_OF_ALL: Final = 100
TRY_EVERY_MS: Final = 12_000
WATCHED_MAX: Final = 10_000


class Role(IntEnum):
    """Each may do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


def role_of(word: str) -> Role:
    """ConfigError if there is no such role."""
    try:
        return Role[word.upper()]
    except KeyError:
        words = ", ".join(role.word for role in Role)
        raise ConfigError(f"role {word!r}: one of {words} expected") from None


class NotAllowed(FirearrowError):
    """The role of a user does not allow it, or nobody is logged in any more."""

    remedy = "Ask an administrator of the console for the role, or log in again."


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: Role
    password_hash: str


class Users:
    """The file of users. It is read anew when somebody else has changed it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hasher = PasswordHasher()
        self._read_at: tuple[int, int] = (-1, -1)
        self._users: dict[str, User] = {}
        # Checked for unknown names, so that they take as long as known ones.
        self._nobody = self._hasher.hash(secrets.token_hex(16))

    def all(self) -> list[User]:
        self._refresh()
        return sorted(self._users.values(), key=lambda user: user.name)

    def get(self, name: str) -> User | None:
        self._refresh()
        return self._users.get(name)

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._users, self._read_at = {}, (-1, -1)
            return
        if (found.st_mtime_ns, found.st_size) != self._read_at:
            self._users = load_with_backup(self._path, _decode) or {}
            self._read_at = (found.st_mtime_ns, found.st_size)

    # --- changing ---------------------------------------------------------------------------

    def add(self, name: str, password: str, role: Role) -> User:
        """A new user; ConfigError if there is one of that name."""
        if self.get(name) is not None:
            raise ConfigError(f"user {name} exists already; change the role or the password")
        if NAME.fullmatch(name) is None:
            raise ConfigError(f"user name {name!r}: up to 64 letters, digits and . _ @ - expected")
        if len(self._users) >= USERS_MAX:
            raise ConfigError(f"there are {USERS_MAX} users already")
        return self._put(User(name, role, self._hash(password)))

    def set_password(self, name: str, password: str) -> None:
        user = self._known(name)
        self._put(User(name, user.role, self._hash(password)))

    def set_role(self, name: str, role: Role) -> None:
        user = self._known(name)
        if user.role is Role.ADMIN and role is not Role.ADMIN:
            self._keep_an_admin(name)
        self._put(User(name, role, user.password_hash))

    def remove(self, name: str) -> None:
        if self._known(name).role is Role.ADMIN:
            self._keep_an_admin(name)
        del self._users[name]
        self._write()

    def create_first(self) -> tuple[str, str] | None:
        """If there is nobody yet: an administrator with a password that is told only once."""
        if self.all():
            return None
        password = secrets.token_urlsafe(15)
        self.add("admin", password, Role.ADMIN)
        return "admin", password

    def _known(self, name: str) -> User:
        user = self.get(name)
        if user is None:
            raise ConfigError(f"there is no user {name}")
        return user

    def _keep_an_admin(self, without: str) -> None:
        if not any(one.role is Role.ADMIN and one.name != without for one in self._users.values()):
            raise ConfigError(f"{without} is the last administrator; make another one first")

    def _hash(self, password: str) -> str:
        if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
            raise ConfigError(f"a password has at least {PASSWORD_CHARS_MIN} characters")
        return self._hasher.hash(password)

    def _put(self, user: User) -> User:
        self._users[user.name] = user
        self._write()
        return user

    def _write(self) -> None:
        table = {
            name: {"role": user.role.word, "passwordHash": user.password_hash}
            for name, user in sorted(self._users.items())
        }
        text = json.dumps({"users": table}, indent=2) + "\n"
        write_atomically(self._path, text.encode(), keep_backup=False)
        self._path.chmod(0o600)
        found = self._path.stat()
        self._read_at = (found.st_mtime_ns, found.st_size)

    # --- logging in -------------------------------------------------------------------------

    def check(self, name: str, password: str) -> User | None:
        """The user, if that is the password. Slow on purpose: use a thread."""
        user = self.get(name)
        try:
            self._hasher.verify(
                self._nobody if user is None else user.password_hash, password[:PASSWORD_CHARS_MAX]
            )
        except (VerificationError, InvalidHashError):
            return None
        return user


def _decode(raw: bytes) -> dict[str, User]:
    try:
        table = json.loads(raw)["users"]
        return {
            name: User(name, Role[one["role"].upper()], one["passwordHash"])
            for name, one in table.items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a table of users: {error!r}") from error


# --- who is logged in -------------------------------------------------------------------------


@dataclass(slots=True)
class Visitor:
    """Somebody who has logged in. The role is looked up at every use: it may have changed."""

    name: str
    token: str
    address: str
    used_ms: int


class Sessions:
    """Logins by the secret in the visitor's cookie."""

    def __init__(self, users: Users, clock: Clock, idle_ms: int) -> None:
        self._users = users
        self._clock = clock
        self._idle_ms = idle_ms
        self._visitors: dict[str, Visitor] = {}

    def open(self, name: str, address: str) -> Visitor:
        if len(self._visitors) >= SESSIONS_MAX:
            oldest = min(self._visitors.values(), key=lambda one: one.used_ms)
            del self._visitors[oldest.token]
        token = secrets.token_urlsafe(32)
        visitor = Visitor(name, token, address, self._clock.elapsed_ms())
        self._visitors[token] = visitor
        return visitor

    def find(self, token: str | None) -> Visitor | None:
        """Who has this secret, if the login still counts and the user still exists."""
        visitor = self._visitors.get(token or "")
        if visitor is None:
            return None
        now_ms = self._clock.elapsed_ms()
        if now_ms - visitor.used_ms > self._idle_ms or self._users.get(visitor.name) is None:
            del self._visitors[visitor.token]
            return None
        visitor.used_ms = now_ms
        return visitor

    def role(self, visitor: Visitor) -> Role | None:
        """What a visitor may do now; None for one who is not logged in any more."""
        if self.find(visitor.token) is not visitor:
            return None
        user = self._users.get(visitor.name)
        return None if user is None else user.role

    def need(self, visitor: Visitor, role: Role) -> None:
        """NotAllowed unless the visitor has the role, or a higher one."""
        has = self.role(visitor)
        if has is None:
            raise NotAllowed("you are not logged in any more")
        if has < role:
            raise NotAllowed(f"this needs the role {role.word}; {visitor.name} is a {has.word}")

    def close(self, token: str | None) -> None:
        self._visitors.pop(token or "", None)


@dataclass(slots=True)
class _Tries:
    left: float
    at_ms: int


@dataclass(slots=True)
class LoginLimiter:
    """A few failures are free, then one every few seconds: for an address, and for all of them."""

    clock: Clock
    _tries: dict[str, _Tries] = field(default_factory=dict)

    def wait_ms(self, address: str) -> int:
        """How long an address must wait before it may try again; 0 if it may now."""
        return max(self._wait_ms(address, TRIES_OF_ONE), self._wait_ms("", TRIES_OF_ALL))

    def failed(self, address: str) -> None:
        for key, most in ((address, TRIES_OF_ONE), ("", TRIES_OF_ALL)):
            self._now(key, most).left -= 1
        if len(self._tries) > WATCHED_MAX:
            oldest = min((key for key in self._tries if key), key=lambda k: self._tries[k].at_ms)
            del self._tries[oldest]

    def succeeded(self, address: str) -> None:
        self._tries.pop(address, None)

    def _wait_ms(self, key: str, most: int) -> int:
        left = self._now(key, most).left
        return 0 if left >= 1 else int((1 - left) * TRY_EVERY_MS)

    def _now(self, key: str, most: int) -> _Tries:
        now_ms = self.clock.elapsed_ms()
        tries = self._tries.setdefault(key, _Tries(most, now_ms))
        tries.left = min(most, tries.left + (now_ms - tries.at_ms) / TRY_EVERY_MS)
        tries.at_ms = now_ms
        return tries
