"""The name server's only durable state: namespaces of keys and values.

Its one widespread use is the namespace ORDER_TOPIC_CONFIG, which fixes the queues of ordered
topics. The file is Apache's: ``{"configTable":{"namespace":{"key":"value"}}}``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.base.errors import ConfigError, PeerProtocolError
from firearrow.base.files import read_with_backup, write_atomically
from firearrow.wire import java_json

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"


class KVConfigFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    config_table: dict[str, dict[str, str]] = {}


class KVConfig:
    """Small, rarely changed, written to disk on every change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file, if there is one. A damaged file stops the start: it was worth keeping."""
        try:
            content = read_with_backup(self._path)
            if content is not None:
                self._table = java_json.decode(content, KVConfigFile).config_table
        except (OSError, PeerProtocolError) as error:
            raise ConfigError(
                f"kvConfigPath {self._path} cannot be read: {error}; "
                "mend or remove the file (the version before is beside it, ending in .bak)"
            ) from error

    def put(self, namespace: str, key: str, value: str) -> None:
        self._replace(namespace, {**self._table.get(namespace, {}), key: value})
        log.info("KV config %s/%s set to %r", namespace, key, value)

    def delete(self, namespace: str, key: str) -> None:
        """Deleting what is not there succeeds."""
        table = dict(self._table.get(namespace, {}))
        if table.pop(key, None) is not None:
            self._replace(namespace, table)
            log.info("KV config %s/%s deleted", namespace, key)

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        return self._table.get(namespace)

    def log_all(self) -> None:
        """Leave a trace of the whole table in the log, as Apache's name server does."""
        log.info("KV config has %d namespaces", len(self._table))
        for namespace, table in self._table.items():
            for key, value in table.items():
                log.info("KV config %s/%s is %r", namespace, key, value)

    def _replace(self, namespace: str, table: dict[str, str]) -> None:
        """Change the file, then the memory: what was answered is what a restart finds.

        On the loop, on purpose: an administrator's request and a few kilobytes.
        """
        changed = {**self._table, namespace: table}
        try:
            write_atomically(self._path, java_json.encode(KVConfigFile(config_table=changed)))
        except OSError as error:
            log.exception("kvConfigPath %s cannot be written", self._path)
            raise ConfigError(f"nothing is changed: {self._path.name}: {error}") from error
        self._table = changed
