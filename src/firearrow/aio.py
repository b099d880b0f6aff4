"""FireArrow's clients for asyncio: the names of `firearrow`, with `await`.

They live in the event loop that starts them; nothing runs anywhere else but plain handlers, which
run in threads.
"""

from firearrow.base.errors import FirearrowError
from firearrow.client.admin import Admin
from firearrow.client.allocation import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocationStrategy,
)
from firearrow.client.consumer_state import ConsumerSettings
from firearrow.client.errors import ClientError
from firearrow.client.handlers import ConsumeStatus, DeadLetter, Retry
from firearrow.client.hooks import ConsumeContext, ConsumeHook, SendContext, SendHook
from firearrow.client.idempotent import IdempotentProducer
from firearrow.client.message import Message, ReceivedMessage
from firearrow.client.options import ClientOptions, Credentials, RequestHook
from firearrow.client.producer import Producer
from firearrow.client.pull_consumer import PullConsumer
from firearrow.client.push_consumer import PushConsumer
from firearrow.client.sending import SendReceipt, SendStatus
from firearrow.client.transactions import TransactionProducer, TransactionReceipt, TransactionState
from firearrow.client.window import WindowLimits
from firearrow.model.compression import Compression
from firearrow.model.errors import BrokerError
from firearrow.model.group import ConsumeFromWhere, MessageModel
from firearrow.model.topic import MessageQueue
from firearrow.net.errors import NetworkError

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
]
