"""What can go wrong between two programs, as opposed to what a server may answer."""

from __future__ import annotations

from firearrow.base.errors import FirearrowError


class NetworkError(FirearrowError):
    """The request did not get its answer. `retriable` says whether another try makes sense."""

    retriable = True
    remedy = "Check the network and the server; try again."


class ConnectFailed(NetworkError):
    """Nobody answers at that address. Is the server running, and is the address right?"""

    code = 10001
    remedy = "Check that the server runs and that its address is right."


class ConnectionLost(NetworkError):
    """The connection ended before the answer came. The request may or may not have been done."""


class RequestTimeout(NetworkError):
    """No answer within the time allowed. The request may or may not have been done."""

    code = 10002
    remedy = "Allow more time, or look why the server is slow."
