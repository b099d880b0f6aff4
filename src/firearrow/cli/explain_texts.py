"""What codes mean that no error class of ours speaks about, and who answers which request."""

from __future__ import annotations

from typing import Final

# Response codes: what happened, and what to do about it.
RESPONSES: Final[dict[str, tuple[str, str]]] = {
    "SUCCESS": ("The request was done.", "Nothing."),
    "TRANSACTION_FAILED": ("A transaction could not be ended.", "Look at the broker's log."),
    "FLUSH_DISK_TIMEOUT": (
        "The message is stored, but was not on disk within the time allowed (syncFlushTimeout).",
        "Look whether the disk is slow or full; the message may be lost if the machine fails now.",
    ),
    "SLAVE_NOT_AVAILABLE": (
        "The message is stored on the master, but no slave was there to copy it.",
        "Start the slave, or lower inSyncReplicas.",
    ),
    "FLUSH_SLAVE_TIMEOUT": (
        "The message is stored on the master, but no slave had it in time.",
        "Look at the replication lag: firearrow mqadmin haStatus -b HOST:PORT.",
    ),
    "VERSION_NOT_SUPPORTED": ("The server is too old or too new.", "Use versions that match."),
    "TOPIC_EXIST_ALREADY": ("There is such a topic.", "Use it, or choose another name."),
    "PULL_NOT_FOUND": (
        "No new message came while the pull waited. Consumers see it all the time.",
        "Nothing.",
    ),
    "PULL_RETRY_IMMEDIATELY": (
        "Messages were there, but the filter wanted none of them; go on at the next offset.",
        "Nothing: clients do it by themselves.",
    ),
    "PULL_OFFSET_MOVED": (
        "The offset asked for is not in the queue (expired, or beyond its end), or was reset.",
        "Nothing: the answer says where to go on.",
    ),
    "TRANSACTION_SHOULD_COMMIT": ("An answer to a check: commit.", "Nothing."),
    "TRANSACTION_SHOULD_ROLLBACK": ("An answer to a check: roll back.", "Nothing."),
    "TRANSACTION_STATE_UNKNOW": ("An answer to a check: not known yet.", "It is asked again."),
    "TRANSACTION_STATE_GROUP_WRONG": (
        "A check went to a producer of another group.",
        "Use one producer group for one kind of transaction.",
    ),
    "NO_MESSAGE": ("There is no such message.", "It may have expired: firearrow topic status."),
    "POLLING_FULL": (
        "Too many clients wait for messages with POP.",
        "POP is not built into FireArrow's broker; other brokers: raise popPollingSize.",
    ),
    "POLLING_TIMEOUT": ("No message came while a POP waited.", "Nothing."),
    "BROKER_NOT_EXIST": ("No broker has that name.", "See: firearrow cluster ls."),
    "BROKER_DISPATCH_NOT_COMPLETE": (
        "The broker has not yet derived all queues from its log.",
        "Wait; it is catching up after a start.",
    ),
    "BROADCAST_CONSUMPTION": (
        "Members of a broadcasting group have their offsets in files of their own.",
        "Reset it on the clients.",
    ),
    "NOT_LEADER_FOR_QUEUE": (
        "A static topic's queue lives on another broker.",
        "Ask for the route again. Static topics are not built into FireArrow's broker.",
    ),
    "ILLEGAL_OPERATION": ("The operation makes no sense in this state.", "Read the remark."),
    "NO_BUYER_ID": ("Reserved by RocketMQ; never sent.", "Nothing."),
    "NOT_IN_CURRENT_UNIT": ("Reserved by RocketMQ; never sent.", "Nothing."),
    "USER_NOT_EXIST": ("No such user.", "Create the user."),
    "POLICY_NOT_EXIST": ("No such rule.", "Create the rule."),
    "RPC_UNKNOWN": ("A request between brokers failed.", "Read the remark."),
    "RPC_ADDR_IS_NULL": ("A broker does not know the other's address.", "Look at its settings."),
    "RPC_SEND_TO_CHANNEL_FAILED": ("A broker could not reach another.", "Check the network."),
    "RPC_TIME_OUT": ("A broker did not answer another in time.", "Check the network and the load."),
}
CONTROLLER: Final = (
    "The controller, which chooses masters, did not do it: the name says why.",
    "Look at the controller's state: firearrow mqadmin getControllerMetaData -a HOST:PORT.",
)
NOT_BUILT: Final = {
    "POP_MESSAGE": "POP",
    "ACK_MESSAGE": "POP",
    "BATCH_ACK_MESSAGE": "POP",
    "PEEK_MESSAGE": "POP",
    "CHANGE_MESSAGE_INVISIBLETIME": "POP",
    "NOTIFICATION": "POP",
    "POLLING_INFO": "POP",
    "POP_ROLLBACK": "POP",
    "UPDATE_AND_CREATE_STATIC_TOPIC": "static topics",
    "CHECK_ROCKSDB_CQ_WRITE_PROGRESS": "RocksDB",
    "EXPORT_ROCKSDB_CONFIG_TO_JSON": "RocksDB",
    "ADD_BROKER": "broker containers",
    "REMOVE_BROKER": "broker containers",
    "SET_COMMITLOG_READ_MODE": "changing read-ahead while running",
    "UPDATE_COLD_DATA_FLOW_CTR_CONFIG": "flow control of cold reads",
    "REMOVE_COLD_DATA_FLOW_CTR_CONFIG": "flow control of cold reads",
    "GET_COLD_DATA_FLOW_CTR_INFO": "flow control of cold reads",
}
