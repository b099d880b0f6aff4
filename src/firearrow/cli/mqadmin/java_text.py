"""Values as Java's tools print them: maps, numbers, times, queues, records."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from firearrow.base.errors import ConfigError
from firearrow.cli.output import printable
from firearrow.model.topic import perm_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firearrow.client.message import ReceivedMessage
    from firearrow.client.sending import SendReceipt
    from firearrow.model.topic import MessageQueue, TopicConfig


def truth(value: object) -> str:
    """``true`` and ``false``; anything else as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def front(text: str, size: int) -> str:
    """At most so many characters."""
    return text[:size]


def a_map(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{key}={truth(value)}" for key, value in values.items()) + "}"


def a_double(value: float) -> str:
    """As `Double.toString`: at least one digit behind the point."""
    if value and not 1e-3 <= abs(value) < 1e7:
        sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
        first, *rest = map(str, digits)
        power = int(exponent) + len(rest)
        return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{power}"
    return repr(float(value))


def moment(timestamp_ms: int) -> str:
    """``2026-11-15 08:55:30,468``, local time."""
    return _local(timestamp_ms).strftime("%Y-%m-%d %H:%M:%S,") + f"{timestamp_ms % 1000:03d}"


def second(timestamp_ms: int) -> str:
    """``2026-11-15 08:55:30``, local time."""
    return _local(timestamp_ms).strftime("%Y-%m-%d %H:%M:%S")


def compact(timestamp_ms: int) -> str:
    """``20261115085530468``, local time."""
    return _local(timestamp_ms).strftime("%Y%m%d%H%M%S") + f"{timestamp_ms % 1000:03d}"


def _local(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone()


def parse_moment(option: str, given: str, now_ms: int) -> int:
    """``now``, milliseconds, or ``2026-11-15#08:55:30:468``."""
    if given == "now":
        return now_ms
    if given.lstrip("-").isdecimal():
        return int(given)
    try:
        # The zone is the machine's: what is written names none.
        found = datetime.strptime(given, "%Y-%m-%d#%H:%M:%S:%f")  # noqa: DTZ007
    except ValueError:
        raise ConfigError(
            f"{option} {given!r}: now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS expected"
        ) from None
    return int(found.astimezone().timestamp() * 1000)


def queue(one: MessageQueue) -> str:
    return f"MessageQueue [topic={one.topic}, brokerName={one.broker_name}, queueId={one.queue_id}]"


def topic_config(one: TopicConfig, attributes: Mapping[str, str] | None = None) -> str:
    return (
        f"TopicConfig [topicName={one.topic_name}, readQueueNums={one.read_queue_nums}, "
        f"writeQueueNums={one.write_queue_nums}, perm={perm_text(one.perm)}, "
        f"topicFilterType={one.topic_filter_type}, topicSysFlag={one.topic_sys_flag}, "
        f"order={truth(one.order)}, "
        f"attributes={a_map(one.attributes if attributes is None else attributes)}]"
    )


def message(one: ReceivedMessage, body_crc: int) -> str:
    """A message in full, but for its body, of which the bytes are shown."""
    in_transaction = one.properties.get("TRAN_MSG") == "true"
    transaction = truth(one.transaction_id if in_transaction else None)
    signed = [byte - 256 if byte > 127 else byte for byte in one.body]
    inner = (
        f"Message{{topic='{one.topic}', flag={one.flag}, properties={a_map(one.properties)}, "
        f"body={signed}, transactionId='{transaction}'}}"
    )
    return printable(
        f"MessageExt [brokerName={one.broker_name}, queueId={one.queue.queue_id}, "
        f"storeSize={one.record_bytes}, queueOffset={one.queue_offset}, sysFlag={one.sys_flag}, "
        f"bornTimestamp={one.born_timestamp}, bornHost=/{one.born_host}, "
        f"storeTimestamp={one.store_timestamp}, storeHost=/{one.store_host}, "
        f"msgId={one.offset_msg_id}, commitLogOffset={one.commit_log_offset}, bodyCRC={body_crc}, "
        f"reconsumeTimes={one.reconsume_times}, "
        f"preparedTransactionOffset={one.prepared_offset}, toString()={inner}]"
    )


def send_result(one: SendReceipt) -> str:
    return (
        f"SendResult [sendStatus={one.status.name}, msgId={one.msg_id}, "
        f"offsetMsgId={one.offset_msg_id}, messageQueue={queue(one.queue)}, "
        f"queueOffset={one.queue_offset}, recallHandle={truth(one.recall_handle)}]"
    )
