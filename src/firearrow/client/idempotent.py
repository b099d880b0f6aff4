"""A producer that may send again: a lost answer makes no second message.

Each message gets the name of this run of the producer and a number of its own. FireArrow's brokers
know both again; Apache's store them like any property and know nothing. What one broker has stored
no other knows, so all tries of a message go to one queue, which follows from its number: also when
the application itself sends a message again that has failed.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import TYPE_CHECKING, Final, Unpack

from firearrow.base.errors import FirearrowError
from firearrow.client.producer import Producer, ProducerOptions

if TYPE_CHECKING:
    from firearrow.client.hooks import SendContext
    from firearrow.client.message import Message
    from firearrow.client.selection import Selector
    from firearrow.client.sending import SendReceipt
    from firearrow.model.topic import MessageQueue

PRODUCER: Final = "FA_PRODUCER"
SEQUENCE: Final = "FA_SEQ"
PAUSE_S: Final = 0.1  # between tries: a broker that was lost needs a moment


class _SeesNothing:
    """Who is watched takes no short cut around `send`."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


class IdempotentProducer(Producer):
    """A producer whose resends make no second message, on FireArrow's brokers.

    `send` numbers messages; batches, one-way sends and transactions go as with any producer. A
    message whose send has failed can be sent again, by this producer, and is stored once.

    Args:
        group: As for `Producer`.
        options: Everything else as for `Producer`. `retries` is how often a message is tried again
            in its `timeout_ms`, which the tries share.
    """

    def __init__(self, group: str, **options: Unpack[ProducerOptions]) -> None:
        options["hooks"] = (*options.get("hooks", ()), _SeesNothing())
        super().__init__(group, **options)
        self._name = f"{group}-{uuid.uuid4().hex}"[-128:]
        self._numbers = itertools.count()

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | int | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send one message until the broker has it, and has it once.

        Raises:
            FirearrowError: When it failed; it may be stored all the same, and can be sent again.
        """
        properties = message.properties
        if properties.get(PRODUCER) != self._name:
            properties[PRODUCER] = self._name
            properties[SEQUENCE] = str(next(self._numbers))
        deadline_ms = self._clock.elapsed_ms() + (timeout_ms or self.timeout_ms)
        if queue is None and key is None and selector is None and message.sharding_key is None:
            queues = await self.queues(message.topic)
            queue = queues[int(properties[SEQUENCE]) % len(queues)]
        for left in range(self.retries, -1, -1):
            share_ms = max(1, (deadline_ms - self._clock.elapsed_ms()) // (left + 1))
            try:
                return await super().send(
                    message, queue=queue, key=key, selector=selector, timeout_ms=share_ms
                )
            except FirearrowError as error:
                late = self._clock.elapsed_ms() >= deadline_ms
                if not left or late or not self.worth_retrying(error):
                    raise
            await asyncio.sleep(PAUSE_S)
        raise AssertionError("the last try returns or raises")
