"""Filters written in Python: who may install them, and what is installed.

Whoever installs a filter has code run on the broker's machine, however tightly held. So nobody may,
unless the operator has named them in `filterInstallers`, and requests cannot change that setting.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, TypeAlias

from firearrow.base.errors import ConfigError
from firearrow.broker.processors.common import json_reply
from firearrow.model.errors import NoPermission, SubscriptionParseFailed
from firearrow.wire import bodies, headers
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from firearrow.broker.state import BrokerState
    from firearrow.net.connection import Connection

WITH_SOURCE: Final = "withSource"

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def installers_of(text: str) -> list[Network]:
    """Addresses and networks, separated by commas; ConfigError names the one that is neither."""
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise ConfigError(
                f"filterInstallers={text!r}: {part!r} is no address and no network: {error}"
            ) from error
    return found


def is_granted(installers: list[Network], peer: str) -> bool:
    """Whether somebody at this address (HOST:PORT) may install filters."""
    try:
        address = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return any(address in network for network in installers)


class FilterAdmin:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._installers = installers_of(state.config.filter_installers)

    def _check(self, connection: Connection) -> None:
        if not self._state.filter_server.is_on:
            raise NoPermission("this broker runs no filters: filterServerNums is 0")
        if not is_granted(self._installers, connection.peer):
            host = connection.peer.rpartition(":")[0].strip("[]")
            raise NoPermission(
                f"{host} may not install, copy or remove filters: the operator grants it with "
                "filterInstallers"
            )

    async def handle_install(self, command: Command, connection: Connection) -> Command:
        asked = headers.InstallFilterRequest.from_ext(command.ext)
        self._check(connection)
        try:
            source = command.body.decode()
        except UnicodeDecodeError as error:
            raise SubscriptionParseFailed(f"the filter is no UTF-8 text: {error}") from error
        await self._state.filter_server.install(asked.name, source, connection.peer)
        return reply_to(command)

    async def handle_remove(self, command: Command, connection: Connection) -> Command:
        asked = headers.RemoveFilterRequest.from_ext(command.ext)
        self._check(connection)
        await self._state.filter_server.remove(asked.name, connection.peer)
        return reply_to(command)

    def handle_list(self, command: Command, connection: Connection) -> Command:
        """What is installed and how it is doing; the code itself only for a slave's copy."""
        with_source = command.ext.get(WITH_SOURCE) == "true"
        if with_source:
            self._check(connection)
        return json_reply(
            command,
            bodies.FilterList(
                filters=tuple(
                    bodies.FilterInfo(
                        name=one.name,
                        installed_time=one.installed_ms,
                        installed_by=one.installed_by,
                        judged=one.judged,
                        stopped=one.stopped,
                        last_error=one.last_error,
                        source=one.source if with_source else None,
                    )
                    for one in self._state.filter_server.all()
                )
            ),
        )
