"""The root of all errors, and the one question that decides what happens next: whose mistake?

`PeerProtocolError` is theirs (close the connection, log one line), `ConfigError` is the operator's
(say what to change, exit), everything else is ours.
"""

from __future__ import annotations


class FirearrowError(Exception):
    """Every error that FireArrow raises on purpose.

    What happened is in its text, why is its `cause`, what to do about it is its `remedy`; a retry
    loop looks at `retriable` and at nothing else.
    """

    code: int = 1  # RocketMQ's number for it; 1 is its "system error"
    retriable: bool = False
    remedy: str = "See the text of the error."

    @property
    def cause(self) -> BaseException | None:
        """The error behind this one, if there was one."""
        return self.__cause__


class PeerProtocolError(FirearrowError):
    """The other side broke the protocol. Its connection cannot be trusted any further."""


class RecordError(FirearrowError):
    """Bytes that should hold a stored message do not."""


class ConfigError(FirearrowError):
    """A setting is unknown, mistyped or dangerous; the text names it and says what to do."""
