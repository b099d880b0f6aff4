"""What a client can fail at on its own, with RocketMQ's numbers for it.

What a server answers is in `firearrow.model.errors`, what the network does in
`firearrow.net.errors`; all of them are `FirearrowError` and carry code, cause, remedy, `retriable`.
"""

from __future__ import annotations

from firearrow.base.errors import FirearrowError


class ClientError(FirearrowError):
    """The client could not do it; no server said no."""

    code = -1


class InvalidMessage(ClientError):
    """The message cannot be sent as it is; nothing was sent."""

    code = 13
    remedy = "Correct the message: topic, body, size, properties."


class InvalidName(ClientError):
    """A topic or group has a name that RocketMQ does not allow."""

    remedy = "Use letters, digits, '%', '|', '_' and '-', within the length limit."


class BrokerNotFound(ClientError):
    """No address is known for a broker name: it is down, or the route is old."""

    code = 10003
    retriable = True
    remedy = "Start the broker, or wait until the name server knows it."


class NoNameServer(ClientError):
    """No name server was given."""

    code = 10004
    remedy = "Pass nameservers='host:9876' or set NAMESRV_ADDR."


class NoRoute(ClientError):
    """The name server knows no broker for a topic."""

    code = 10005
    retriable = True
    remedy = "Create the topic, or start a broker that creates topics on first use."


class InvalidRequest(ClientError):
    """An administrator asked for something that cannot be; nothing was changed."""

    code = 29
    remedy = "Correct the argument that the text names."


class AlreadyExists(ClientError):
    """A topic or group is there already, with other settings; it was left as it is."""

    code = 18
    remedy = "Change it with update_topic or update_group, or choose another name."


class ResetImpossible(ClientError):
    """A broker cannot move a group that is running to the offsets that were asked for."""

    remedy = "Stop the group's consumers first, or reset by time."


class SendTimeout(ClientError):
    """The time for a send was used up before it succeeded; the message may have been stored."""

    code = 10002
    retriable = True
    remedy = "Allow more time (timeout_ms), or look why the broker is slow."


class TooManyRequests(ClientError):
    """More sends are waiting than `in_flight_max` allows."""

    code = 10002
    retriable = True
    remedy = "Await some of the sends before starting more, or raise in_flight_max."


class ReplyTimeout(ClientError):
    """The request was sent, but nobody replied in time."""

    code = 10006
    retriable = True
    remedy = "Check that a consumer replies, and how long it takes."


class ReplyImpossible(ClientError):
    """A message that asks for no reply cannot be replied to."""

    code = 10007
    remedy = "Reply only to messages that were sent with request()."


class ClientClosed(ClientError):
    """The client was not started yet, is closed, or belongs to another process."""

    remedy = "Use it inside its `with` block; after a fork, create a new one in the child."


class ConsumerMisuse(ClientError):
    """A consumer was asked for something that its way of working does not allow."""

    remedy = "See the text: subscribe and assign exclude each other, and names must be unique."
