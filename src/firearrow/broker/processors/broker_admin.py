"""The broker itself: settings, how it is doing, statistics, cleaning up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.config import NotRemote, to_properties, updated
from firearrow.base.errors import ConfigError, PeerProtocolError
from firearrow.broker.ignored_keys import IGNORED_KEYS
from firearrow.broker.processors.common import json_reply
from firearrow.broker.runtime_info import ha_status, runtime_info
from firearrow.model.errors import NoPermission, ServerFailed
from firearrow.model.topic import DataVersion
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.command import Command, reply_to
from firearrow.wire.properties_text import format_properties, parse_properties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.broker.state import BrokerState
    from firearrow.broker.statistics import Sum
    from firearrow.net.connection import Connection

log = logging.getLogger(__name__)

CONFIG_BYTES_MAX: Final = 64 * 1024  # all our settings together have a tenth of it


class BrokerAdmin:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._version = DataVersion(timestamp=state.clock.now_ms())

    # --- settings ---------------------------------------------------------------------------

    def handle_get_config(self, command: Command, _: Connection) -> Command:
        version = java_json.encode(self._version).decode()
        body = format_properties(to_properties(self._state.config))
        return reply_to(command, header=headers.GetBrokerConfigReply(version=version), body=body)

    def handle_update_config(self, command: Command, connection: Connection) -> Command:
        """Change what may be changed by request: all that is asked for, or nothing."""
        if len(command.body) > CONFIG_BYTES_MAX:
            raise ServerFailed(
                f"settings of {len(command.body)} bytes; the limit is {CONFIG_BYTES_MAX}"
            )
        try:
            changes = parse_properties(command.body)
            refuse_idle(changes)
            config = updated(self._state.config, changes, who="update request")
            if config != self._state.config:
                self._state.reconfigure(config, changes)
                self._version = self._version.next_version(self._state.clock.now_ms())
                log.info("%s changed the configuration: %s", connection.peer, changes)
        except NotRemote as error:
            raise NoPermission(str(error)) from error
        except (ConfigError, PeerProtocolError) as error:
            raise ServerFailed(str(error)) from error
        return reply_to(command)

    # --- how it is doing --------------------------------------------------------------------

    def handle_runtime_info(self, command: Command, _: Connection) -> Command:
        return json_reply(command, bodies.KVTable(table=runtime_info(self._state)))

    def handle_statistics(self, command: Command, _: Connection) -> Command:
        asked = headers.ViewBrokerStatsDataRequest.from_ext(command.ext)
        sums = self._state.statistics.sums(asked.stats_name, asked.stats_key)
        if sums is None:
            raise ServerFailed(f"nothing was counted as {asked.stats_name} for {asked.stats_key}")
        minute, hour, day = map(_item, sums)
        body = bodies.BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)
        return json_reply(command, body)

    def handle_ha_status(self, command: Command, _: Connection) -> Command:
        return json_reply(command, ha_status(self._state))

    # --- cleaning up ------------------------------------------------------------------------

    def handle_clean_queues(self, command: Command, _: Connection) -> Command:
        """Nothing is left to do: queues give up what the log has lost when it loses it."""
        return reply_to(command)

    def handle_clean_log(self, command: Command, _: Connection) -> Command:
        self._state.store.clean_soon()
        return reply_to(command)


def refuse_idle(changes: Iterable[str]) -> None:
    """Say so when a setting of Apache's would change nothing, rather than take it for changed."""
    if idle := sorted(IGNORED_KEYS.intersection(changes)):
        raise ConfigError(f"nothing is changed, since here it has no effect: {', '.join(idle)}")


def _item(total: Sum) -> bodies.BrokerStatsItem:
    return bodies.BrokerStatsItem(sum=total.amount, tps=total.tps, avgpt=total.average)
