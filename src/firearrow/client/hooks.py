"""What an application can watch: sends before and after, deliveries before and after.

A hook that raises is logged and does no harm.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from firearrow.client.message import Message, ReceivedMessage
    from firearrow.client.sending import SendReceipt
    from firearrow.model.topic import MessageQueue

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One send, seen from outside; the same object before and after."""

    group: str
    messages: Sequence[Message]
    queue: MessageQueue
    broker_address: str
    started_ms: int
    receipt: SendReceipt | None = None
    error: BaseException | None = None
    took_ms: int = 0
    notes: dict[str, Any] = field(default_factory=dict)  # for the hook's own use


class SendHook(Protocol):
    """Sees every try to send."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


@dataclass(slots=True, kw_only=True)
class ConsumeContext:
    """One call of a handler, seen from outside; the same object before and after."""

    group: str
    messages: Sequence[ReceivedMessage]
    queue: MessageQueue
    started_ms: int
    success: bool = False
    outcome: str = ""  # SUCCESS, TIME_OUT, EXCEPTION, RETURNNULL or FAILED
    took_ms: int = 0
    notes: dict[str, Any] = field(default_factory=dict)


class ConsumeHook(Protocol):
    """Sees every call of a handler, in the thread that makes it."""

    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


def call_each(callbacks: Iterable[Callable[[Any], None]], context: object) -> None:
    """Call hooks one after the other; one that fails is logged, the others go on."""
    for callback in callbacks:
        try:
            callback(context)
        except Exception:
            log.exception("hook %r failed", callback)
