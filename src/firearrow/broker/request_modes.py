"""How groups ask for the messages of a topic, as administrators set it: PULL or POP; pure state."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.wire.bodies import MessageRequestModes, SetMessageRequestModeBody


class RequestModes:
    """By topic, then by group. What an Apache broker has saved stays, also what we do not do."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.table: dict[str, dict[str, SetMessageRequestModeBody]] = {}

    def load(self, saved: MessageRequestModes) -> None:
        self.table = {
            topic: dict(groups) for topic, groups in saved.message_request_mode_map.items()
        }

    def put(self, mode: SetMessageRequestModeBody) -> None:
        self.table.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._on_change()
