"""An etcd of one member with its JSON gateway, small enough to lose answers when it is told to.

Its answers have the bytes of etcd 3.4.23 (`tests/cluster/test_etcd.py` has recordings of those);
what it does is written from etcd's documentation: linear history, leases, transactions.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock

MISSING: Final = {"error": "etcdserver: requested lease not found", "code": 5}


class Fault(Enum):
    """What becomes of one request."""

    NONE = auto()
    SILENCE = auto()  # taken, not done, not answered
    LOST = auto()  # done, and the connection ends before the answer
    LATE = auto()  # done when `release` is called, and never answered
    REFUSED = auto()  # 503, and not done


@dataclass(slots=True)
class Key:
    value: str
    create_revision: int
    mod_revision: int
    lease: int


@dataclass(slots=True)
class Lease:
    seconds: int
    until_ms: int


class EtcdModel:
    """All state, and the faults. `clock` is this machine's own."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.keys: dict[bytes, Key] = {}
        self.leases: dict[int, Lease] = {}
        self.revision = 1
        self.fault: Callable[[str], Fault] = lambda _: Fault.NONE
        self.asked: list[str] = []
        self._numbers = itertools.count(7587862094612345678)  # more than a double can hold
        self._late: list[tuple[str, dict[str, Any]]] = []
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Request(self), host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answer(self, path: str, asked: dict[str, Any]) -> bytes | None:
        """None: never; empty: hang up."""
        self.asked.append(path)
        fault = self.fault(path)
        if fault is Fault.SILENCE:
            return None
        if fault is Fault.LATE:
            self._late.append((path, asked))
            return None
        if fault is Fault.REFUSED:
            return _http(503, {"error": "etcdserver: no leader", "code": 14})
        answer = _http(*self._do(path, asked))
        return b"" if fault is Fault.LOST else answer

    def release(self) -> None:
        """What was late arrives."""
        late, self._late = self._late, []
        for path, asked in late:
            self._do(path, asked)

    # --- what etcd does ---------------------------------------------------------------------

    def _do(self, path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        now_ms = self.clock.now_ms()
        for lease in [n for n, lease in self.leases.items() if now_ms >= lease.until_ms]:
            self._end(lease)
        act = {
            "/v3/kv/range": self._range,
            "/v3/kv/txn": self._transaction,
            "/v3/lease/grant": self._grant,
            "/v3/lease/keepalive": self._keep_alive,
            "/v3/lease/revoke": self._revoke,
        }[path]
        status, said = act(asked)
        return status, {"header": self._header(), **said} if status == 200 else said

    def _header(self) -> dict[str, str]:
        return {"cluster_id": "1", "member_id": "2", "revision": str(self.revision)}

    def _end(self, lease: int) -> None:
        del self.leases[lease]
        gone = [key for key, held in self.keys.items() if held.lease == lease]
        for key in gone:
            del self.keys[key]
        self.revision += bool(gone)

    def _grant(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        number, seconds = next(self._numbers), max(int(asked["TTL"]), 2)
        self.leases[number] = Lease(seconds, self.clock.now_ms() + seconds * 1_000)
        return 200, {"ID": str(number), "TTL": str(seconds)}

    def _keep_alive(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        result: dict[str, Any] = {"header": self._header(), "ID": asked["ID"]}
        if (lease := self.leases.get(int(asked["ID"]))) is not None:
            lease.until_ms = self.clock.now_ms() + lease.seconds * 1_000
            result["TTL"] = str(lease.seconds)
        return 200, {"result": result}

    def _revoke(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if int(asked["ID"]) not in self.leases:
            return 404, MISSING
        self._end(int(asked["ID"]))
        return 200, {}

    def _range(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        first = base64.b64decode(asked["key"])
        end = base64.b64decode(asked.get("range_end", "")) or first + b"\0"
        found = [key for key in sorted(self.keys) if first <= key < end]
        return 200, {"kvs": [self._told(key) for key in found]} if found else {}

    def _told(self, key: bytes) -> dict[str, str]:
        held = self.keys[key]
        told = {"key": base64.b64encode(key).decode(), "value": held.value}
        told["create_revision"] = str(held.create_revision)
        told["mod_revision"] = str(held.mod_revision)
        return told | ({"lease": str(held.lease)} if held.lease else {})

    def _transaction(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        for condition in asked["compare"]:
            assert (condition["target"], condition["result"]) == ("CREATE", "EQUAL")
            held = self.keys.get(base64.b64decode(condition["key"]))
            if (held.create_revision if held else 0) != int(condition["create_revision"]):
                return 200, {}
        for act in asked["success"]:
            if "request_put" in act:
                lease = int(act["request_put"].get("lease", 0))
                if lease and lease not in self.leases:
                    return 404, MISSING
        self.revision += 1
        for act in asked["success"]:
            self._write(act)
        return 200, {"succeeded": True}

    def _write(self, act: dict[str, Any]) -> None:
        if "request_delete_range" in act:
            self.keys.pop(base64.b64decode(act["request_delete_range"]["key"]), None)
            return
        put = act["request_put"]
        key = base64.b64decode(put["key"])
        created = self.keys[key].create_revision if key in self.keys else self.revision
        self.keys[key] = Key(put["value"], created, self.revision, int(put.get("lease", 0)))


class _Request(asyncio.Protocol):
    """One connection, which is one request."""

    def __init__(self, model: EtcdModel) -> None:
        self._model = model
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        first, *fields = head.decode().split("\r\n")
        size = next(int(field.split(":")[1]) for field in fields if "Length" in field)
        if len(body) == size:
            answer = self._model.answer(first.split(" ")[1], json.loads(body))
            if answer is not None:
                self._transport.write(answer)
                self._transport.close()


def _http(status: int, said: dict[str, Any]) -> bytes:
    head = f"HTTP/1.0 {status} Told\r\nContent-Type: application/json\r\n\r\n"
    return head.encode() + json.dumps(said).encode() + b"\n"
