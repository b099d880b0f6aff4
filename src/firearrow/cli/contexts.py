"""Named clusters: which name servers a command asks, from flags, environment and a file.

First found wins: ``-n``, ``--context``, FIREARROW_NAMESERVERS, FIREARROW_CONTEXT, NAMESRV_ADDR, the
context in use, 127.0.0.1:9876. The file is ``contexts.json`` in FIREARROW_CONFIG_DIR or in the
user's directory for settings; it holds no secrets: those come from the environment.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.base.errors import ConfigError
from firearrow.base.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_NAMESERVERS: Final = "127.0.0.1:9876"  # where `firearrow up` listens
NAME: Final = re.compile(r"[\w.-]{1,64}", re.ASCII)
ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\s:;,/]+):(\d{1,5})")


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    nameservers: str
    description: str = ""
    namespace: str = ""


class Contexts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the file holds."""

    current: str | None = None
    contexts: dict[str, Context] = {}


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The name servers of a command, and who said so."""

    nameservers: str
    source: str
    namespace: str = ""


def check_nameservers(text: str) -> str:
    """ConfigError unless it is ``host:port``, or several joined by semicolons."""
    parts = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    wrong = [part for part in parts if not _is_address(part.rpartition("/")[2])]
    if wrong or not parts:
        raise ConfigError(
            f"name servers {text!r}: host:port expected, several separated by ';', "
            "as 10.0.0.1:9876;10.0.0.2:9876"
        )
    return ";".join(parts)


def _is_address(part: str) -> bool:
    found = ADDRESS.fullmatch(part)
    return found is not None and 0 < int(found[2]) < 65_536


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"context {name!r}: a name has up to 64 letters, digits, '_', '-' and '.'"
        )
    return name


def config_dir(environment: Mapping[str, str]) -> Path:
    """Where this user's settings are."""
    if given := environment.get("FIREARROW_CONFIG_DIR"):
        return Path(given)
    if given := environment.get("XDG_CONFIG_HOME"):
        return Path(given) / "firearrow"
    return Path.home() / ".config" / "firearrow"


class ContextFile:
    """The contexts of one user, on disk."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self.path = config_dir(self._environment) / "contexts.json"

    def load(self) -> Contexts:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return Contexts()
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}") from error
        try:
            return msgspec.json.decode(content, type=Contexts)
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self.path} is not what `firearrow context` writes: {error}; correct or remove it"
            ) from error

    def save(self, contexts: Contexts) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
            write_atomically(self.path, content + b"\n", keep_backup=False)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error

    def named(self, name: str, source: str) -> Where:
        contexts = self.load().contexts
        if name not in contexts:
            known = ", ".join(sorted(contexts)) or "none"
            raise ConfigError(
                f"there is no context {name} ({source}), only {known}; "
                f"add it: firearrow context add {name} HOST:9876"
            )
        one = contexts[name]
        return Where(nameservers=one.nameservers, source=source, namespace=one.namespace)

    def resolve(self, nameservers: str | None, context: str | None) -> Where:
        """Which cluster is meant; the order is at the top of this file."""
        environment = self._environment
        said = (
            ("-n", nameservers, None),
            ("--context", None, context),
            ("FIREARROW_NAMESERVERS", environment.get("FIREARROW_NAMESERVERS") or None, None),
            ("FIREARROW_CONTEXT", None, environment.get("FIREARROW_CONTEXT") or None),
            ("NAMESRV_ADDR", environment.get("NAMESRV_ADDR") or None, None),
        )
        for source, addresses, name in said:
            if addresses is not None:
                return Where(nameservers=check_nameservers(addresses), source=source)
            if name is not None:
                return self.named(name, source)
        current = self.load().current
        if current is not None:
            return self.named(current, f"context {current}")
        return Where(nameservers=DEFAULT_NAMESERVERS, source="default")
