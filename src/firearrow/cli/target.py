"""The cluster that a command works on: its clients, opened when first needed, closed at the end."""

from __future__ import annotations

import os
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from firearrow.base.errors import ConfigError
from firearrow.cli.contexts import ContextFile

if TYPE_CHECKING:
    from firearrow.cli.contexts import Where
    from firearrow.client.blocking import BlockingClient, Producer, PullConsumer
    from firearrow.client.blocking_admin import Admin
    from firearrow.client.options import ClientOptions


C = TypeVar("C", bound="BlockingClient[Any]")


class Target:
    """Name servers, patience, and the clients that use them; a context manager."""

    def __init__(self, where: Where, timeout_s: float = 5.0) -> None:
        if not 0 < timeout_s <= 3600:
            raise ConfigError(f"--timeout {timeout_s:g}: seconds from above 0 to 3600")
        self.where = where
        self.timeout_ms = max(1, round(timeout_s * 1000))
        self._opened: list[Any] = []

    @classmethod
    def resolve(cls, nameservers: str | None, context: str | None, timeout_s: float) -> Self:
        return cls(ContextFile().resolve(nameservers, context), timeout_s)

    @property
    def nameservers(self) -> str:
        return self.where.nameservers

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    @cached_property
    def options(self) -> ClientOptions:
        """Settings of all clients; who is asking comes from the environment."""
        from firearrow.client.options import ClientOptions, Credentials  # noqa: PLC0415

        access_key = os.environ.get("FIREARROW_ACCESS_KEY", "")
        secret_key = os.environ.get("FIREARROW_SECRET_KEY", "")
        if bool(access_key) != bool(secret_key):
            raise ConfigError("set both FIREARROW_ACCESS_KEY and FIREARROW_SECRET_KEY, or neither")
        return ClientOptions(
            namespace=self.where.namespace,
            call_timeout_ms=self.timeout_ms,
            credentials=Credentials(access_key, secret_key) if access_key else None,
        )

    @cached_property
    def admin(self) -> Admin:
        from firearrow.client.blocking_admin import Admin  # noqa: PLC0415 - 0.1 s

        return self._open(
            Admin(nameservers=self.nameservers, timeout_ms=self.timeout_ms, client=self.options)
        )

    def producer(self, group: str, **options: Any) -> Producer:  # noqa: ANN401 - its own options
        from firearrow.client.blocking import Producer  # noqa: PLC0415

        return self._open(
            Producer(group, nameservers=self.nameservers, client=self.options, **options)
        )

    def pull_consumer(self, group: str, **options: Any) -> PullConsumer:  # noqa: ANN401
        from firearrow.client.blocking import PullConsumer  # noqa: PLC0415

        return self._open(
            PullConsumer(group, nameservers=self.nameservers, client=self.options, **options)
        )

    def _open(self, client: C) -> C:
        client.start()
        self._opened.append(client)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._opened:
            self._opened.pop().close()
