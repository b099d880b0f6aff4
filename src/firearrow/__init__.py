"""FireArrow: a message queue for Python and data teams that speaks RocketMQ.

    from firearrow import Message, Producer, PushConsumer

The clients here block; `firearrow.aio` has the same ones for asyncio. Importing this package is
cheap: it loads no client, no server, no gRPC and no Spark before a name is used (a test checks it).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from firearrow.base.errors import FirearrowError
    from firearrow.client.allocation import (
        AllocateAveragely,
        AllocateAveragelyByCircle,
        AllocateByConfig,
        AllocateByConsistentHash,
        AllocateByMachineRoom,
        AllocateMachineRoomNearby,
        AllocationStrategy,
    )
    from firearrow.client.blocking import (
        IdempotentProducer,
        Producer,
        PullConsumer,
        PushConsumer,
        TransactionProducer,
    )
    from firearrow.client.blocking_admin import Admin
    from firearrow.client.consumer_state import ConsumerSettings
    from firearrow.client.errors import ClientError
    from firearrow.client.handlers import ConsumeStatus, DeadLetter, Retry
    from firearrow.client.hooks import ConsumeContext, ConsumeHook, SendContext, SendHook
    from firearrow.client.message import Message, ReceivedMessage
    from firearrow.client.options import ClientOptions, Credentials, RequestHook
    from firearrow.client.sending import SendReceipt, SendStatus
    from firearrow.client.transactions import TransactionReceipt, TransactionState
    from firearrow.client.window import WindowLimits
    from firearrow.model.compression import Compression
    from firearrow.model.errors import BrokerError
    from firearrow.model.group import ConsumeFromWhere, MessageModel
    from firearrow.model.topic import MessageQueue
    from firearrow.net.errors import NetworkError

__version__ = "0.1.0.dev0"

# Where each public name lives; loaded when first used.
_HOMES: Final = {
    "Admin": "firearrow.client.blocking_admin",
    "AllocateAveragely": "firearrow.client.allocation",
    "AllocateAveragelyByCircle": "firearrow.client.allocation",
    "AllocateByConfig": "firearrow.client.allocation",
    "AllocateByConsistentHash": "firearrow.client.allocation",
    "AllocateByMachineRoom": "firearrow.client.allocation",
    "AllocateMachineRoomNearby": "firearrow.client.allocation",
    "AllocationStrategy": "firearrow.client.allocation",
    "BrokerError": "firearrow.model.errors",
    "ClientError": "firearrow.client.errors",
    "ClientOptions": "firearrow.client.options",
    "Compression": "firearrow.model.compression",
    "ConsumeContext": "firearrow.client.hooks",
    "ConsumeFromWhere": "firearrow.model.group",
    "ConsumeHook": "firearrow.client.hooks",
    "ConsumeStatus": "firearrow.client.handlers",
    "ConsumerSettings": "firearrow.client.consumer_state",
    "Credentials": "firearrow.client.options",
    "DeadLetter": "firearrow.client.handlers",
    "FirearrowError": "firearrow.base.errors",
    "IdempotentProducer": "firearrow.client.blocking",
    "Message": "firearrow.client.message",
    "MessageModel": "firearrow.model.group",
    "MessageQueue": "firearrow.model.topic",
    "NetworkError": "firearrow.net.errors",
    "Producer": "firearrow.client.blocking",
    "PullConsumer": "firearrow.client.blocking",
    "PushConsumer": "firearrow.client.blocking",
    "ReceivedMessage": "firearrow.client.message",
    "RequestHook": "firearrow.client.options",
    "Retry": "firearrow.client.handlers",
    "SendContext": "firearrow.client.hooks",
    "SendHook": "firearrow.client.hooks",
    "SendReceipt": "firearrow.client.sending",
    "SendStatus": "firearrow.client.sending",
    "TransactionProducer": "firearrow.client.blocking",
    "TransactionReceipt": "firearrow.client.transactions",
    "TransactionState": "firearrow.client.transactions",
    "WindowLimits": "firearrow.client.window",
}

__all__ = [
    "Admin",
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateMachineRoomNearby",
    "AllocationStrategy",
    "BrokerError",
    "ClientError",
    "ClientOptions",
    "Compression",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeHook",
    "ConsumeStatus",
    "ConsumerSettings",
    "Credentials",
    "DeadLetter",
    "FirearrowError",
    "IdempotentProducer",
    "Message",
    "MessageModel",
    "MessageQueue",
    "NetworkError",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "RequestHook",
    "Retry",
    "SendContext",
    "SendHook",
    "SendReceipt",
    "SendStatus",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionState",
    "WindowLimits",
    "__version__",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of the names above
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
