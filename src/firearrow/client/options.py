"""What every client can be told, whatever it does; the defaults are RocketMQ's."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from firearrow.base.runtime import Clock, SystemClock
from firearrow.client.errors import NoNameServer
from firearrow.net.client import split_address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from firearrow.wire.command import Command

NAMESERVERS_VARIABLE: Final = "NAMESRV_ADDR"  # RocketMQ's own


class RequestHook(Protocol):
    """Sees every request before it leaves, and its answer."""

    def before_request(self, address: str, command: Command) -> None:
        """May add fields; an exception stops the request."""
        ...

    def after_response(self, address: str, command: Command, response: Command) -> None: ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who is asking. Every request is signed as RocketMQ's ACL expects it."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, command: Command) -> None:
        """Add key and signature: over all fields in the order of their names, then the body."""
        ext = command.ext
        ext["AccessKey"] = self.access_key
        if self.security_token is not None:
            ext["SecurityToken"] = self.security_token
        ext.pop("Signature", None)
        content = "".join(ext[name] for name in sorted(ext)).encode() + bytes(command.body)
        digest = hmac.new(self.secret_key.encode(), content, hashlib.sha1).digest()
        ext["Signature"] = base64.b64encode(digest).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Settings that producers, consumers and Admin share.

    Attributes:
        namespace: Prefixed to every topic and group on the wire, hidden from the application.
        namespace_v2: Sent beside every request instead, as RocketMQ 5 does.
        instance_name: Part of the client id; by default unique per process and object.
        unit_name: Another part of the client id.
        credentials: Sign every request.
        tls: Encrypt; a context from `ssl.create_default_context()`.
        vip_channel: Send to the broker's port minus two, as old clients do.
        call_timeout_ms: Time for a control request.
        route_refresh_ms: How often routes are asked for again.
        heartbeat_ms: How often brokers are told that this client lives.
        hooks: See every request.
        clock: Where time comes from; tests pass their own.
    """

    namespace: str = ""
    namespace_v2: str = ""
    instance_name: str = ""
    unit_name: str | None = None
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None
    vip_channel: bool = False
    call_timeout_ms: int = 3_000
    route_refresh_ms: int = 30_000
    heartbeat_ms: int = 30_000
    hooks: tuple[RequestHook, ...] = ()
    clock: Clock = field(default_factory=SystemClock)

    def decorate(self, command: Command) -> Command:
        """Add what every request carries under these settings."""
        if self.namespace_v2:
            command.ext["nsd"] = "true"
            command.ext["ns"] = self.namespace_v2
        if self.credentials is not None:
            self.credentials.sign(command)
        return command

    @property
    def plain(self) -> bool:
        """Whether requests leave as they are made: nothing is added, nobody looks."""
        return not (self.namespace_v2 or self.credentials or self.hooks)


def parse_nameservers(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Addresses from an argument or, without one, from the environment.

    ``host:port;host:port`` is RocketMQ's form; commas, a list and ``http://host:port`` do as well.
    """
    if given is None:
        given = os.environ.get(NAMESERVERS_VARIABLE, "")
    text = given if isinstance(given, str) else ";".join(given)
    addresses = [part.strip() for part in text.replace(",", ";").split(";")]
    found = tuple(dict.fromkeys(part.rpartition("/")[2] for part in addresses if part))
    if not found:
        raise NoNameServer(
            f"no name server is known: pass nameservers='host:9876' or set {NAMESERVERS_VARIABLE}"
        )
    for address in found:
        split_address(address)
    return found
