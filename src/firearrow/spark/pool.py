"""What a process keeps open between queries, batches and tasks: one set of connections a cluster.

Python workers of Spark run many tasks one after the other; what one leaves here the next one uses.
After a fork the child begins with nothing: what is open belongs to its parent.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from firearrow.spark.puller import PullConnection

if TYPE_CHECKING:
    from firearrow.spark.directory import Directory
    from firearrow.spark.options import ConnectionOptions, ReadOptions

IDLE_S_MAX: Final = 60.0  # brokers hang up after two minutes
IDLE_CONNECTIONS_MAX: Final = 16

_guard = threading.Lock()
_directories: dict[ConnectionOptions, Directory] = {}
_idle: dict[tuple[ConnectionOptions, str], list[tuple[float, PullConnection]]] = {}


def directory(options: ReadOptions) -> Directory:
    """The process's directory of a cluster."""
    from firearrow.spark.directory import Directory  # noqa: PLC0415 - tasks seldom need it

    with _guard:
        found = _directories.get(options.connection)
        if found is None:
            found = _directories[options.connection] = Directory(
                options.connection,
                retries=options.retries,
                retry_interval_ms=options.retry_interval_ms,
            )
        return found


def borrow(connection: ConnectionOptions, address: str, timeout_ms: int) -> PullConnection:
    """A connection that nobody uses; a new one if there is none."""
    with _guard:
        idle = _idle.get((connection, address), [])
        while idle:
            since, found = idle.pop()
            if time.monotonic() - since < IDLE_S_MAX:
                return found
            found.close()
    return PullConnection(address, connection.client_options(), timeout_ms)


def give_back(connection: ConnectionOptions, used: PullConnection) -> None:
    """For the next one; only with no answer outstanding."""
    with _guard:
        idle = _idle.setdefault((connection, used.address), [])
        if used.usable and sum(map(len, _idle.values())) < IDLE_CONNECTIONS_MAX:
            idle.append((time.monotonic(), used))
            return
    used.close()


def close_all() -> None:
    """Hang up; for the end of a process, and for tests."""
    with _guard:
        directories = list(_directories.values())
        connections = [one for idle in _idle.values() for _, one in idle]
        _directories.clear()
        _idle.clear()
    for one in connections:
        one.close()
    for found in directories:
        found.close()


def _forget() -> None:
    global _guard  # noqa: PLW0603 - the parent may hold it
    _guard = threading.Lock()
    _directories.clear()
    for idle in _idle.values():
        for _, one in idle:
            one.close()  # the descriptor; the connection goes on in the parent
    _idle.clear()


os.register_at_fork(after_in_child=_forget)
