"""etcd, as far as controllers need it: keys, leases and guarded changes, over its JSON gateway.

Rule: a question is put to every member until one answers; a change is sent to another member only
if the first has not heard of it. After any other failure nobody knows whether it was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from firearrow.base.errors import FirearrowError
from firearrow.net.errors import ConnectFailed, NetworkError
from firearrow.net.http_client import post_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.base.runtime import Clock
    from firearrow.net.http_client import Site

OK: Final = 200
NOT_FOUND: Final = 404

_T = TypeVar("_T", bound=msgspec.Struct)


class EtcdError(FirearrowError):
    """etcd answers, and not what was hoped for."""

    retriable = True
    remedy = "Look at etcd: has it a leader, has it room (etcdctl endpoint status, alarm list)?"


class KeyValue(msgspec.Struct, frozen=True, kw_only=True):
    key: bytes  # msgspec reads and writes bytes as base64, as the gateway does
    value: bytes = b""
    create_revision: int = 0
    lease: int = 0


class _Header(msgspec.Struct, frozen=True):
    revision: int = 0


class _Range(msgspec.Struct, frozen=True):
    kvs: list[KeyValue] = []


class _Granted(msgspec.Struct, frozen=True):
    ID: int = 0
    TTL: int = 0


class _KeptAlive(msgspec.Struct, frozen=True):
    result: _Granted = _Granted()


class _Transaction(msgspec.Struct, frozen=True):
    header: _Header = _Header()
    succeeded: bool = False


class Etcd:
    """One cluster of etcd; the member that answered last is asked first."""

    def __init__(self, members: Sequence[Site], clock: Clock, *, timeout_ms: int) -> None:
        assert members
        self._members = list(members)
        self._clock = clock
        self._timeout_ms = timeout_ms

    def __str__(self) -> str:
        """Where it is, for messages."""
        return ", ".join(map(str, sorted(self._members, key=str)))

    # --- questions --------------------------------------------------------------------------

    async def get(self, key: bytes) -> KeyValue | None:
        """What the majority has for a key."""
        found = await self._ask("kv/range", {"key": key}, _Range)
        return found.kvs[0] if found.kvs else None

    async def get_all(self, prefix: bytes) -> list[KeyValue]:
        """Everything whose key begins so."""
        assert prefix[-1] < 0xFF
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        return (await self._ask("kv/range", {"key": prefix, "range_end": end}, _Range)).kvs

    # --- leases: to do one of these twice does no harm --------------------------------------

    async def grant(self, seconds: int) -> tuple[int, int]:
        """A new lease and the seconds that it has: etcd may give more than it is asked for."""
        granted = await self._ask("lease/grant", {"TTL": str(seconds)}, _Granted)
        if not granted.ID or granted.TTL <= 0:
            raise EtcdError(f"{self}: a lease without a number or without time: {granted}")
        return granted.ID, granted.TTL

    async def keep_alive(self, lease: int) -> int:
        """The seconds that a lease has from now on; 0 if there is no such lease any more."""
        return (await self._ask("lease/keepalive", {"ID": str(lease)}, _KeptAlive)).result.TTL

    async def revoke(self, lease: int) -> None:
        """End a lease and the keys that hang on it; no error if it has ended already."""
        await self._ask("lease/revoke", {"ID": str(lease)}, _Granted, may_be_missing=True)

    # --- changes ----------------------------------------------------------------------------

    async def put_if_created_at(
        self, guard: bytes, revision: int, key: bytes, value: bytes, *, lease: int = 0
    ) -> int | None:
        """Put `key` if `guard` was created at `revision` (0: is not there).

        Returns the revision of the change, None if the guard is another one.
        """
        put = {"key": key, "value": value, "lease": str(lease)}
        return await self._change(guard, revision, {"request_put": put})

    async def delete_if_created_at(self, guard: bytes, revision: int, key: bytes) -> int | None:
        return await self._change(guard, revision, {"request_delete_range": {"key": key}})

    async def _change(self, guard: bytes, revision: int, act: dict[str, Any]) -> int | None:
        condition = {
            "key": guard,
            "target": "CREATE",
            "result": "EQUAL",
            "create_revision": str(revision),
        }
        request = {"compare": [condition], "success": [act]}
        done = await self._ask("kv/txn", request, _Transaction, once=True)
        return done.header.revision if done.succeeded else None

    # --- asking -----------------------------------------------------------------------------

    async def _ask(
        self,
        what: str,
        request: dict[str, Any],
        kind: type[_T],
        *,
        once: bool = False,
        may_be_missing: bool = False,
    ) -> _T:
        body = msgspec.json.encode(request)
        complaints = []
        for member in list(self._members):
            try:
                status, said = await post_json(
                    member, f"/v3/{what}", body, clock=self._clock, timeout_ms=self._timeout_ms
                )
            except NetworkError as error:
                if once and not isinstance(error, ConnectFailed):
                    raise
                complaints.append(str(error))
                continue
            if status == OK:
                self._members.remove(member)
                self._members.insert(0, member)
                return _read(member, said, kind)
            if status == NOT_FOUND and may_be_missing:
                return kind()
            complaints.append(f"{member}: {status} {said[:200].decode('utf-8', 'replace').strip()}")
            if once:
                break
        raise EtcdError("; ".join(complaints))


def _read(member: Site, said: bytes, kind: type[_T]) -> _T:
    try:
        # The gateway writes 64-bit numbers as text, as JSON's own cannot hold them.
        return msgspec.json.decode(said, type=kind, strict=False)
    except msgspec.DecodeError as error:
        raise EtcdError(f"{member}: an answer that is not etcd's: {error}") from error
