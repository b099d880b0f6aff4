"""Ending transactions, and asking producers about open ones."""

from typing import Final

from msgspec import field

from firearrow.wire.header import Header, Int32, Int64

# Values of `commit_or_rollback`; anything else is refused.
TRANSACTION_UNKNOWN: Final = 0
TRANSACTION_COMMIT: Final = 8
TRANSACTION_ROLLBACK: Final = 12


class EndTransactionRequest(Header, frozen=True, kw_only=True):
    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64  # queue offset of the half message
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionStateRequest(Header, frozen=True, kw_only=True):
    """Broker to producer, one way; the answer is an `EndTransactionRequest` with both offsets."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class GetOpenTransactionsRequest(Header, frozen=True, kw_only=True):
    """Ours: which half messages wait for their end."""

    topic: str | None = None  # where they will go; else all
    from_offset: Int64 = 0  # of the half queue: to go on behind the last of a full answer
    max_num: Int32 = 100


class EndTransactionsRequest(Header, frozen=True, kw_only=True):
    """Ours: end many transactions of one group, in the order of the body, and answer once.

    The body has 16 bytes for each half message:

        | place in the half queue 8 | place in the log 8 |
    """

    producer_group: str
    commit_or_rollback: Int32
    scope: str | None = None  # with it, half messages of this scope that are not listed and are
    epoch: Int64 | None = None  # of this epoch or an earlier one are rolled back: nobody wants them


class EndTransactionsReply(Header, frozen=True, kw_only=True):
    ended: Int32 = 0
    ended_before: Int32 = 0
    swept: Int32 = 0  # rolled back without being listed


class ResumeCheckHalfMessageRequest(Header, frozen=True, kw_only=True):
    topic: str | None = None
    msg_id: str | None = None
