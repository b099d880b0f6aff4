"""Everything that the console can change. Pages call these and nothing else that writes.

Each is checked against the visitor's role at the moment of doing it, and goes into the audit list
with what came of it: done, refused or failed.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import FirearrowError
from firearrow.client.message import Message, ReceivedMessage
from firearrow.console.data.messages import copy_of, find_again
from firearrow.console.users import NotAllowed, Role, Visitor, role_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from firearrow.client.admin_offsets import ResetTarget
    from firearrow.client.admin_results import OffsetReset
    from firearrow.client.sending import SendReceipt
    from firearrow.console.state import ConsoleState

# Who may do what. Looking at bodies and exporting them is in the list, since it needs a role.
RIGHTS: Final[Mapping[str, Role]] = {
    "body.view": Role.OPERATOR,
    "message.send": Role.OPERATOR,
    "message.resend": Role.OPERATOR,
    "message.recall": Role.OPERATOR,
    "dlq.resend": Role.OPERATOR,
    "dlq.export": Role.OPERATOR,
    "group.reset": Role.OPERATOR,
    "group.create": Role.OPERATOR,
    "topic.create": Role.OPERATOR,
    "topic.update": Role.OPERATOR,
    "topic.delete": Role.ADMIN,
    "group.delete": Role.ADMIN,
    "broker.config": Role.ADMIN,
    "user.add": Role.ADMIN,
    "user.role": Role.ADMIN,
    "user.password": Role.ADMIN,
    "user.remove": Role.ADMIN,
}


class Actions:
    def __init__(self, state: ConsoleState) -> None:
        self._state = state

    def may(self, who: Visitor, action: str) -> bool:
        """Whether a visitor's role allows it now: what pages show buttons by."""
        role = self._state.sessions.role(who)
        return role is not None and role >= RIGHTS[action]

    @asynccontextmanager
    async def _do(
        self, who: Visitor, action: str, target: str, details: str = ""
    ) -> AsyncIterator[None]:
        """Check the right, do it, write it down; a write that fails is written down as well."""
        outcome = "done"
        try:
            self._state.sessions.need(who, RIGHTS[action])
            yield
        except NotAllowed as error:
            outcome, details = "refused", f"{details} ({error})".strip()
            raise
        except BaseException as error:
            outcome, details = "failed", f"{details} ({error})".strip()
            raise
        finally:
            self._state.audit.add(
                user=who.name,
                address=who.address,
                action=action,
                target=target,
                details=details,
                outcome=outcome,
            )

    # --- topics -----------------------------------------------------------------------------

    async def create_topic(
        self, who: Visitor, name: str, *, queues: int, perm: int, kind: str, order: bool
    ) -> None:
        details = f"queues={queues} perm={perm} type={kind} order={order}"
        async with self._do(who, "topic.create", name, details):
            attributes = {"message.type": kind} if kind != "NORMAL" else None
            await self._state.admin.create_topic(
                name, queues=queues, perm=perm, order=order, attributes=attributes
            )
            self._state.catalog.changed()

    async def update_topic(
        self, who: Visitor, name: str, *, read_queues: int, write_queues: int, perm: int
    ) -> None:
        details = f"readQueues={read_queues} writeQueues={write_queues} perm={perm}"
        async with self._do(who, "topic.update", name, details):
            await self._state.admin.update_topic(
                name, read_queues=read_queues, write_queues=write_queues, perm=perm
            )
            self._state.catalog.changed()

    async def delete_topic(self, who: Visitor, name: str) -> None:
        async with self._do(who, "topic.delete", name):
            await self._state.admin.delete_topic(name)
            self._state.catalog.changed()

    # --- groups -----------------------------------------------------------------------------

    async def create_group(self, who: Visitor, name: str, *, retry_max: int) -> None:
        async with self._do(who, "group.create", name, f"retryMaxTimes={retry_max}"):
            await self._state.admin.create_group(name, retry_max_times=retry_max)
            self._state.catalog.changed()

    async def delete_group(self, who: Visitor, name: str) -> None:
        async with self._do(who, "group.delete", name):
            await self._state.admin.delete_group(name)
            self._state.catalog.changed()

    async def preview_reset(self, group: str, topic: str, to: ResetTarget) -> OffsetReset:
        """What a reset would do; it changes nothing, and anybody may look."""
        return await self._state.admin.reset_offset(group, topic, to, dry_run=True)

    async def reset(self, who: Visitor, group: str, topic: str, to: ResetTarget) -> OffsetReset:
        async with self._do(who, "group.reset", group, f"topic={topic} to={to}"):
            done = await self._state.admin.reset_offset(group, topic, to)
            self._state.catalog.changed()
            return done

    # --- messages ---------------------------------------------------------------------------

    async def send(
        self, who: Visitor, topic: str, body: str, *, tags: str, keys: str, delay_s: int
    ) -> SendReceipt:
        details = f"tags={tags} keys={keys} bytes={len(body.encode())} delay={delay_s}s"
        async with self._do(who, "message.send", topic, details):
            message = Message(
                topic,
                body,
                tags=tags or None,
                keys=keys.split() or None,
                delay_ms=delay_s * 1_000 if delay_s else None,
            )
            return await (await self._state.producer()).send(message)

    async def resend(self, who: Visitor, message: ReceivedMessage) -> SendReceipt:
        async with self._do(who, "message.resend", message.topic, f"id={message.msg_id}"):
            found = await find_again(self._state.admin, message)
            return await (await self._state.producer()).send(copy_of(found))

    async def resend_dead(
        self, who: Visitor, group: str, messages: Sequence[ReceivedMessage]
    ) -> int:
        """Give dead letters another chance; returns how many went."""
        ids = " ".join(one.msg_id for one in messages)
        async with self._do(who, "dlq.resend", group, f"{len(messages)} messages: {ids}"):
            for message in messages:
                await self._state.admin.resend_dlq(message)
        return len(messages)

    async def note_export(self, who: Visitor, group: str, count: int) -> None:
        """Bodies leave the console: it is written down."""
        async with self._do(who, "dlq.export", group, f"{count} messages"):
            pass

    async def recall(self, who: Visitor, topic: str, handle: str, msg_id: str) -> None:
        async with self._do(who, "message.recall", topic, f"id={msg_id}"):
            await (await self._state.producer()).recall(topic, handle)

    # --- brokers ----------------------------------------------------------------------------

    async def set_broker(self, who: Visitor, broker: str, key: str, value: str) -> None:
        async with self._do(who, "broker.config", broker, f"{key}={value}"):
            await self._state.admin.update_broker_config({key: value}, broker=broker)

    # --- users ------------------------------------------------------------------------------

    async def add_user(self, who: Visitor, name: str, password: str, role: str) -> None:
        async with self._do(who, "user.add", name, f"role={role}"):
            chosen = role_of(role)
            await asyncio.to_thread(self._state.users.add, name, password, chosen)

    async def set_role(self, who: Visitor, name: str, role: str) -> None:
        async with self._do(who, "user.role", name, f"role={role}"):
            self._state.users.set_role(name, role_of(role))

    async def set_password(self, who: Visitor, name: str, password: str) -> None:
        """One's own password anybody may change."""
        if name == who.name and self._state.sessions.role(who) is not None:
            await asyncio.to_thread(self._state.users.set_password, name, password)
            self._state.audit.add(
                user=who.name,
                address=who.address,
                action="user.password",
                target=name,
                details="",
                outcome="done",
            )
            return
        async with self._do(who, "user.password", name):
            await asyncio.to_thread(self._state.users.set_password, name, password)

    async def remove_user(self, who: Visitor, name: str) -> None:
        async with self._do(who, "user.remove", name):
            self._state.users.remove(name)


def explain(error: FirearrowError) -> str:
    """What a visitor is told of a failure: what happened, and what to do."""
    remedy = error.remedy if error.remedy != FirearrowError.remedy else ""
    return f"{error} — {remedy}" if remedy else str(error)
