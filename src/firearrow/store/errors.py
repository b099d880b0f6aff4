"""What the store can say no to, and what it finds damaged."""

from __future__ import annotations

from firearrow.base.errors import FirearrowError
from firearrow.model.errors import MessageIllegal, ServiceNotAvailable

__all__ = ["LogMismatch", "MessageIllegal", "ServiceNotAvailable", "StoreDamaged", "StoreInUse"]


class LogMismatch(FirearrowError):
    """Bytes of another copy of the log do not go on where this one ends."""


class StoreDamaged(FirearrowError):
    """The directory cannot be opened as it is; the text names the file and what to do."""


class StoreInUse(FirearrowError):
    """Another process has this directory open."""
