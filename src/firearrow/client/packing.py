"""What a message gets before it leaves: its id, the mark of its namespace, a smaller body."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from firearrow.client.sending import Envelope, envelope
from firearrow.model import message as names
from firearrow.model.compression import Compression, pack, with_compression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.client.message import Message
    from firearrow.client.session import Session

PACK_IN_THREAD_BYTES: Final = 256 * 1024  # from here on packing would hold up the loop


class Packer:
    """Makes the messages of one producer ready."""

    def __init__(
        self, session: Session, *, over_bytes: int, compression: Compression | str, level: int
    ) -> None:
        self._session = session
        self._namespace = session.options.namespace
        self._keys = session.unique_keys
        self.over_bytes = over_bytes
        self._compression = Compression(compression)
        self._level = level

    def mark(self, message: Message) -> str:
        """Give a message its id, unless it has one."""
        properties = message.properties
        msg_id = properties.get(names.UNIQ_KEY)
        if msg_id is None:
            msg_id = properties[names.UNIQ_KEY] = self._keys.next()
        if self._namespace:
            properties[names.INSTANCE_ID] = self._namespace
        return msg_id

    def mark_all(self, messages: Sequence[Message]) -> list[str]:
        """The same for many; returns the ids."""
        keys = self._keys.some(len(messages))
        ids = [
            message.properties.setdefault(names.UNIQ_KEY, key)
            for message, key in zip(messages, keys, strict=True)
        ]
        if self._namespace:
            for message in messages:
                message.properties[names.INSTANCE_ID] = self._namespace
        return ids

    def pack_now(self, body: bytes, sys_flag: int = 0) -> tuple[bytes, int] | None:
        """A body as it travels, and its flag; None if compressing it would hold up the loop."""
        if len(body) < self.over_bytes:
            return body, sys_flag
        if len(body) >= PACK_IN_THREAD_BYTES:
            return None
        sys_flag = with_compression(sys_flag, self._compression)
        return pack(body, self._compression, self._level), sys_flag

    async def pack(self, message: Message, sys_flag: int = 0) -> Envelope:
        """A message ready to leave, but for its queue."""
        self.mark(message)
        packed = self.pack_now(message.body, sys_flag)
        if packed is None:
            body = await asyncio.to_thread(pack, message.body, self._compression, self._level)
            packed = body, with_compression(sys_flag, self._compression)
        return envelope(message, self._session.wrap(message.topic), *packed)
