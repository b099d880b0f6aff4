"""Families of requests. Each has its own bound on how many may wait, so that none starves another.

Most requests are answered as they are read and wait for nothing. What can wait: a send for the
disk, a pull for cold messages, a question that is passed on to a client. The bounds are RocketMQ's
settings of its thread pools' queues; a request beyond its family's is told so (SYSTEM_BUSY).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.net.router import Lane
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from firearrow.broker.config import BrokerConfig


class Lanes:
    def __init__(self, config: BrokerConfig) -> None:
        self.send = Lane("send", config.send_thread_pool_queue_capacity)
        self.pull = Lane("pull", config.pull_thread_pool_queue_capacity)
        self.lite_pull = Lane("lite pull", config.lite_pull_thread_pool_queue_capacity)
        self.ack = Lane("ack", config.ack_thread_pool_queue_capacity)
        self.query = Lane("query", config.query_thread_pool_queue_capacity)
        self.heartbeat = Lane("heartbeat", config.heartbeat_thread_pool_queue_capacity)
        self.client = Lane("client", config.client_manager_thread_pool_queue_capacity)
        self.consumer = Lane("offset", config.consumer_manager_thread_pool_queue_capacity)
        self.end_transaction = Lane(
            "end of transaction", config.end_transaction_pool_queue_capacity
        )
        self.reply = Lane("reply", config.reply_thread_pool_queue_capacity)
        self.admin = Lane("administration", config.admin_broker_thread_pool_queue_capacity)

    def by_code(self) -> dict[int, Lane]:
        """Lanes of requests; what is not listed is administration."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
            RequestCode.STAGE_BATCH: self.send,
            RequestCode.CONSUMER_SEND_MSG_BACK: self.send,
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.PEEK_MESSAGE: self.pull,
            RequestCode.POP_MESSAGE: self.pull,
            RequestCode.NOTIFICATION: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.lite_pull,
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.ack,
            RequestCode.QUERY_MESSAGE: self.query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.query,
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.client,
            RequestCode.CHECK_CLIENT_CONFIG: self.client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.consumer,
            RequestCode.QUERY_CONSUMER_OFFSET: self.consumer,
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.END_TRANSACTIONS: self.end_transaction,
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }
