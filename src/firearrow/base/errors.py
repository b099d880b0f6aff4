"""The root of all errors, and the one question that decides what happens next: whose mistake?

`PeerProtocolError` is theirs (close the connection, log one line), `ConfigError` is the operator's
(say what to change, exit), everything else is ours.
"""

from __future__ import annotations


class FirearrowError(Exception):
    """Every error that FireArrow raises on purpose."""


class PeerProtocolError(FirearrowError):
    """The other side broke the protocol. Its connection cannot be trusted any further."""


class RecordError(FirearrowError):
    """Bytes that should hold a stored message do not."""


class ConfigError(FirearrowError):
    """A setting is unknown, mistyped or dangerous; the text names it and says what to do."""
