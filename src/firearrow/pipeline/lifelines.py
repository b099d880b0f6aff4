"""From events to one life-line for each message: produced, stored, consumed, decided, recalled.

msgId ── sends ──► stored ──► group A: started, finished, cost, status
└─► group B: …               transactions: committed by a check
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from firearrow.pipeline.trace_events import BROKEN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SENT: Final = "filter(events, e -> e.kind = 'Pub')"
_TOLD: Final = "filter(events, e -> e.kind = 'SubBefore')"
# What a group did with a message: before and after it are two events with one request id.
_CONSUMED: Final = f"""
transform({_TOLD}, b -> named_struct(
  'startedAt', b.at,
  'group', b.group,
  'after', try_element_at(
    filter(events, a -> a.kind = 'SubAfter' and a.requestId = b.requestId), 1),
  'retryTimes', b.retryTimes,
  'clientHost', b.clientHost,
  'requestId', b.requestId))
"""
_FINISHED: Final = """
transform(told, c -> named_struct(
  'startedAt', c.startedAt,
  'finishedAt', timestampadd(MILLISECOND, c.after.costMs, c.startedAt),
  'group', c.group,
  'costMs', c.after.costMs,
  'success', c.after.success,
  'status', c.after.status,
  'retryTimes', c.retryTimes,
  'clientHost', c.clientHost,
  'requestId', c.requestId))
"""
_DECIDED: Final = """
transform(filter(events, e -> e.kind = 'EndTransaction'), t -> named_struct(
  'at', t.at, 'state', t.state, 'fromCheck', t.fromCheck, 'transactionId', t.transactionId,
  'group', t.group))
"""
_RECALLED: Final = """
transform(filter(events, e -> e.kind = 'Recall'), r -> named_struct(
  'at', r.at, 'success', r.success, 'group', r.group))
"""
_OUTCOME: Final = """
case
  when exists(recalls, r -> r.success) then 'recalled'
  when exists(transactions, t -> t.state = 'ROLLBACK_MESSAGE') then 'rolled back'
  when exists(consumed, c -> c.success) then 'consumed'
  when size(consumed) > 0 then 'not consumed yet'
  when pub.success is false then 'not sent'
  when messageType = 'TRANSACTION_HALF' and size(transactions) = 0 then 'undecided'
  else 'sent'
end
"""


def lifelines(events: DataFrame, *within: Column) -> DataFrame:
    """One row for each message that was told of; `within` further keys, such as a window."""
    known = events.where((F.col("kind") != BROKEN) & (F.col("msgId") != ""))
    told = known.groupBy("msgId", *within).agg(
        F.sort_array(F.collect_list(F.struct(*events.columns))).alias("events")
    )
    # The send that worked, or the last one that did not.
    pub = f"coalesce(try_element_at(filter({_SENT}, e -> e.success), 1), {_last(_SENT)})"
    lines = (
        told.withColumn("pub", F.expr(pub))
        .withColumn("told", F.expr(_CONSUMED))
        .withColumn("consumed", F.expr(_FINISHED))
        .withColumn("transactions", F.expr(_DECIDED))
        .withColumn("recalls", F.expr(_RECALLED))
        .withColumn("messageType", F.expr("pub.messageType"))
    )
    return lines.select(
        "msgId",
        F.expr(_first("topic")).alias("topic"),
        F.expr(_first("keys")).alias("keys"),
        F.expr(_first("tags")).alias("tags"),
        "messageType",
        F.expr("pub.at").alias("producedAt"),
        F.expr("pub.group").alias("producer"),
        F.expr("pub.clientHost").alias("producerHost"),
        F.expr("pub.success").alias("sent"),
        F.expr(f"size({_SENT})").alias("sends"),
        F.expr("pub.costMs").alias("sendCostMs"),
        F.expr("pub.storeHost").alias("storeHost"),
        F.expr("pub.offsetMsgId").alias("offsetMsgId"),
        F.expr("pub.bodyBytes").alias("bodyBytes"),
        "consumed",
        "transactions",
        "recalls",
        F.expr("array_min(transform(consumed, c -> c.startedAt))").alias("firstConsumedAt"),
        F.expr(_between("array_min(transform(consumed, c -> c.startedAt))")).alias("waitMs"),
        F.expr(
            _between("array_max(transform(filter(consumed, c -> c.success), c -> c.finishedAt))")
        ).alias("endToEndMs"),
        F.expr(_OUTCOME).alias("outcome"),
    )


def with_stored(lines: DataFrame, log: DataFrame) -> DataFrame:
    """Life-lines with place and time of their messages in a log, where it has them."""
    stored = log.select(
        "topic",
        "msgId",
        F.col("queueId"),
        F.col("offset"),
        F.col("storeTimestamp").alias("storedAt"),
    ).dropDuplicates(["topic", "msgId"])
    return lines.join(stored, ["topic", "msgId"], "left")


def consumptions(lines: DataFrame) -> DataFrame:
    """One row for each time that a group got a message."""
    return lines.select("msgId", "topic", "producedAt", F.explode("consumed").alias("one")).select(
        "msgId",
        "topic",
        "one.*",
        F.expr("(unix_micros(one.startedAt) - unix_micros(producedAt)) / 1000").alias("waitMs"),
    )


def _last(array: str) -> str:
    return f"try_element_at({array}, -1)"


def _first(name: str) -> str:
    return f"try_element_at(filter(transform(events, e -> e.{name}), v -> v is not null), 1)"


def _between(end: str) -> str:
    """Milliseconds from the send; clocks of two machines may make it negative."""
    return f"cast((unix_micros({end}) - unix_micros(pub.at)) / 1000 as bigint)"
