"""What can go wrong between two programs, as opposed to what a server may answer."""

from __future__ import annotations

from typing import ClassVar

from firearrow.base.errors import FirearrowError


class NetworkError(FirearrowError):
    """The request did not get its answer. `retriable` says whether another try makes sense."""

    retriable: ClassVar[bool] = True


class ConnectFailed(NetworkError):
    """Nobody answers at that address. Is the server running, and is the address right?"""


class ConnectionLost(NetworkError):
    """The connection ended before the answer came. The request may or may not have been done."""


class RequestTimeout(NetworkError):
    """No answer within the time allowed. The request may or may not have been done."""
