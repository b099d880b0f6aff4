"""What a broker tells Prometheus: RocketMQ's names where it has one, `firearrow_` where not.

Everything is counted while messages pass, or read off tables: a scrape costs what there are series,
however many messages there are. Of lags, offsets tell the number; the age takes one look at one
message for each queue that is behind, and only so many looks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from firearrow.metrics.families import Family, one
from firearrow.metrics.process import process_families
from firearrow.model.errors import ResponseCode
from firearrow.model.group import ConsumeType, is_system_group
from firearrow.model.topic import TIMER_TOPIC, is_dlq_topic, is_retry_topic, is_system_topic
from firearrow.wire.codes import LanguageCode, RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from firearrow.broker.state import BrokerState
    from firearrow.metrics.families import Sample
    from firearrow.net.server import ServerStatistics

AGES_MAX: Final = 1_000  # looks at messages in one scrape
_BOOLEANS: Final = ("false", "true")
_REMOTING: Final = {"protocol_type": "remoting"}
_STORAGE: Final = {"storage_type": "local", "storage_medium": "disk"}


def yes(true: object) -> str:
    return _BOOLEANS[bool(true)]


def broker_families(
    state: BrokerState, listeners: Callable[[], Iterable[ServerStatistics]]
) -> Iterator[Family]:
    """All of them, one after the other; each holds copies of what may change meanwhile."""
    yield from _tables(state)
    yield from _traffic(state)
    yield from _clients(state)
    yield from _progress(state)
    yield from _transactions(state)
    yield from _timers(state)
    yield from _storage(state)
    yield from _requests(state)
    yield from _network(state, listeners())
    yield from process_families(state.statistics.started_ms)


def obstacles(state: BrokerState) -> list[str]:
    """Why this broker cannot serve everybody now."""
    found = [state.store.refusal, state.disk_waits.refusal(), state.registration.obstacle]
    return [reason for reason in found if reason]


# --- what there is ----------------------------------------------------------------------------


def _tables(state: BrokerState) -> Iterator[Family]:
    permission = state.config.broker_permission
    yield Family(
        "rocketmq_broker_permission", "gauge", "2 to write, 4 to read, 6 for both.", one(permission)
    )
    yield Family(
        "rocketmq_topic_number",
        "gauge",
        "Topics, RocketMQ's own included.",
        one(len(state.topics.all())),
    )
    yield Family(
        "rocketmq_consumer_group_number",
        "gauge",
        "Groups, RocketMQ's own included.",
        one(len(state.groups.all())),
    )


def _topic_labels(state: BrokerState, topic: str) -> dict[str, str]:
    known = state.topics.get(topic)
    kind = "normal" if known is None else known.attributes.get("message.type", "NORMAL").lower()
    return {"topic": topic, "message_type": kind, "is_system": yes(is_system_topic(topic))}


def _group_labels(key: str) -> dict[str, str]:
    topic, _, group = key.partition("@")
    system = is_system_group(group) or is_system_topic(topic)
    return {
        "topic": topic,
        "consumer_group": group,
        "is_retry": yes(is_retry_topic(topic)),
        "is_system": yes(system),
    }


# Counters of `statistics` by topic, by ``topic@group``, and by topic alone: name and meaning.
_BY_TOPIC: Final = {
    "TOPIC_PUT_NUMS": ("rocketmq_messages_in_total", "Messages stored, by topic."),
    "TOPIC_PUT_SIZE": ("rocketmq_throughput_in_total", "Bytes stored, by topic."),
}
_BY_GROUP: Final = {
    "GROUP_GET_NUMS": ("rocketmq_messages_out_total", "Messages given to groups."),
    "GROUP_GET_SIZE": ("rocketmq_throughput_out_total", "Bytes given to groups."),
    "DLQ_PUT_NUMS": ("rocketmq_send_to_dlq_messages_total", "Messages that groups gave up on."),
    "SNDBCK_PUT_NUMS": ("firearrow_retried_messages_total", "Messages that consumers sent back."),
}
_PLAIN: Final = {
    "DUPLICATE_PUT_NUMS": ("firearrow_duplicate_sends_total", "Sends of what was here already."),
    "TRANSACTION_COMMITS": ("rocketmq_commit_messages_total", "Transactions that were committed."),
    "TRANSACTION_ROLLBACKS": ("rocketmq_rollback_messages_total", "Transactions rolled back."),
}


def _traffic(state: BrokerState) -> Iterator[Family]:
    found = state.statistics.by_name(*_BY_TOPIC, *_BY_GROUP, *_PLAIN)
    for key, (name, help_text) in _BY_TOPIC.items():
        samples: Iterable[Sample] = (
            (_topic_labels(state, topic), count)
            for topic, count in found[key]
            if not (is_retry_topic(topic) or is_dlq_topic(topic))
        )
        yield Family(name, "counter", help_text, samples)
    for key, (name, help_text) in _BY_GROUP.items():
        samples = ((_group_labels(both), count) for both, count in found[key])
        yield Family(name, "counter", help_text, samples)
    for key, (name, help_text) in _PLAIN.items():
        samples = (({"topic": topic}, count) for topic, count in found[key])
        yield Family(name, "counter", help_text, samples)
    failures = one(state.statistics.put_failures)
    yield Family("firearrow_put_failures_total", "counter", "Messages not stored.", failures)


# --- who is connected -------------------------------------------------------------------------


def language_of(code: int) -> str:
    try:
        return LanguageCode(code).name.lower()
    except ValueError:
        return "other"


def _clients(state: BrokerState) -> Iterator[Family]:
    producers: Counter[tuple[str, int]] = Counter()
    for members in state.clients.producers.values():
        producers.update((language_of(one.language), one.version) for one in members.values())
    yield Family(
        "rocketmq_producer_connections",
        "gauge",
        "Producers that are connected.",
        [
            ({"language": language, "version": str(version), **_REMOTING}, count)
            for (language, version), count in producers.items()
        ],
    )
    consumers: list[Sample] = []
    divergent: list[Sample] = []
    for name, group in state.clients.consumers.items():
        mode = "push" if group.consume_type is ConsumeType.CONSUME_PASSIVELY else "pull"
        counts = Counter((language_of(m.language), m.version) for m in group.members.values())
        consumers += [
            (
                {
                    "consumer_group": name,
                    "language": language,
                    "version": str(version),
                    "consume_mode": mode,
                    "is_system": yes(is_system_group(name)),
                    **_REMOTING,
                },
                count,
            )
            for (language, version), count in counts.items()
        ]
        if topics := group.divergences():
            divergent.append(({"consumer_group": name}, len(topics)))
    yield Family(
        "rocketmq_consumer_connections", "gauge", "Members of groups that are connected.", consumers
    )
    yield Family(
        "firearrow_divergent_subscriptions",
        "gauge",
        "Topics on which the members of a group disagree: it loses messages.",
        divergent,
    )


# --- how far groups are -----------------------------------------------------------------------


def _progress(state: BrokerState) -> Iterator[Family]:
    """A message is in flight from its pull to its commit, and ready before it is pulled."""
    lags: list[Sample] = []
    in_flight: list[Sample] = []
    ready: list[Sample] = []
    ages: list[Sample] = []
    lookup, now_ms, looks = state.store.lookup, state.clock.now_ms(), AGES_MAX
    for topic, group, committed, pulled in state.offsets.progress():
        labels = _group_labels(f"{topic}@{group}")
        lag = flying = age_ms = 0
        for queue_id, offset in committed.items():
            behind = max(0, lookup.max_offset(topic, queue_id) - offset)
            if not behind:
                continue
            lag += behind
            flying += min(behind, max(0, pulled.get(queue_id, offset) - offset))
            looks -= 1
            if looks >= 0:
                first = max(offset, lookup.min_offset(topic, queue_id))
                stored_ms = lookup.store_time(topic, queue_id, first)
                age_ms = max(age_ms, now_ms - stored_ms) if stored_ms > 0 else age_ms
        lags.append((labels, lag))
        in_flight.append((labels, flying))
        ready.append((labels, lag - flying))
        if looks >= 0 or not lag:
            ages.append((labels, age_ms))
    for name, help_text, samples in (
        ("rocketmq_consumer_lag_messages", "Messages that wait for a group.", lags),
        ("rocketmq_consumer_inflight_messages", "Messages pulled and not committed.", in_flight),
        ("rocketmq_consumer_ready_messages", "Messages not pulled yet.", ready),
        ("rocketmq_consumer_lag_latency", "Age in ms of the oldest that waits.", ages),
    ):
        yield Family(name, "gauge", help_text, samples)


def _transactions(state: BrokerState) -> Iterator[Family]:
    transactions = state.transactions
    halves = transactions.halves
    yield Family(
        "rocketmq_half_messages",
        "gauge",
        "Open transactions, by topic.",
        [({"topic": topic}, count) for topic, count in halves.by_topic.items()],
    )
    now_ms = state.clock.now_ms()
    born_ms = min((half.born_ms for half in halves), default=now_ms)
    yield Family(
        "firearrow_oldest_open_transaction_seconds",
        "gauge",
        "Age of the oldest open one.",
        one(max(0, now_ms - born_ms) / 1_000),
    )
    yield Family(
        "firearrow_transaction_checks_total",
        "counter",
        "How often producers were asked.",
        one(transactions.asked),
    )
    yield Family(
        "firearrow_parked_transactions_total",
        "counter",
        "Transactions that nobody settled.",
        one(transactions.parked),
    )


def _timers(state: BrokerState) -> Iterator[Family]:
    timers = state.timers
    counts = timers.counts
    most = state.store.lookup.max_offset(TIMER_TOPIC, 0)
    waiting = max(0, most - timers.queue_offset) if timers.is_enabled else 0
    yield Family(
        "rocketmq_timing_messages",
        "gauge",
        "Messages that wait for their time, by topic.",
        [
            ({"topic": topic}, max(0, metric.count))
            for topic, metric in counts.snapshot().timing_count.items()
        ],
    )
    yield Family(
        "rocketmq_timer_enqueue_lag", "gauge", "Messages on their way into the timer.", one(waiting)
    )
    yield Family(
        "rocketmq_timer_dequeue_latency",
        "gauge",
        "How late the timer is, in ms.",
        one(timers.behind_ms),
    )
    for name, help_text, count in (
        ("rocketmq_timer_enqueue_total", "Messages that went into the timer.", counts.enqueued),
        ("rocketmq_timer_dequeue_total", "Messages that the timer gave out.", counts.delivered),
        ("firearrow_timer_recalled_total", "Messages taken back in time.", counts.recalled),
    ):
        yield Family(name, "counter", help_text, one(count))


# --- disk -------------------------------------------------------------------------------------


def _storage(state: BrokerState) -> Iterator[Family]:
    store = state.store.statistics()
    used, free = state.store.disk_usage()
    oldest = state.store.lookup.record_at(store.min_offset)
    kept_ms = 0 if oldest is None else max(0, state.clock.now_ms() - oldest.store_timestamp)
    for name, help_text, value in (
        ("rocketmq_storage_size", "Bytes of the log.", store.end_offset - store.min_offset),
        (
            "rocketmq_storage_flush_behind_bytes",
            "Bytes not on disk yet.",
            store.end_offset - store.flushed_offset,
        ),
        (
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes not in queues yet.",
            store.end_offset - store.dispatched_offset,
        ),
        ("rocketmq_storage_message_reserve_time", "Age in ms of the oldest message.", kept_ms),
        ("firearrow_disk_used_bytes", "Used on the partition of the log.", used),
        ("firearrow_disk_free_bytes", "Free on the partition of the log.", free),
        ("firearrow_store_queues", "Queues that have, or had, messages.", store.queues),
        ("firearrow_store_waiting", "Sends that wait for the disk.", store.waiting),
        ("firearrow_store_writable", "1 if messages are taken.", 0 if store.read_only else 1),
    ):
        yield Family(name, "gauge", help_text, [(_STORAGE, value)])
    yield Family(
        "firearrow_flush_latency",
        "histogram",
        "Milliseconds of each sync of the log.",
        [(_STORAGE, state.store.sync_histogram)],
    )


# --- requests ---------------------------------------------------------------------------------


def code_name(codes: type[RequestCode | ResponseCode], code: int) -> str:
    try:
        return str(codes(code).name).lower()
    except ValueError:
        return str(code)


def _requests(state: BrokerState) -> Iterator[Family]:
    yield Family(
        "rocketmq_rpc_latency",
        "histogram",
        "Milliseconds from a request to its answer.",
        [
            (
                {
                    **_REMOTING,
                    "request_code": code_name(RequestCode, code),
                    "response_code": code_name(ResponseCode, answer),
                    "is_long_polling": "false",
                    "result": "success",
                },
                histogram,
            )
            for (code, answer), histogram in state.rpc_times.kinds.items()
        ],
    )
    lanes = state.lanes
    yield Family(
        "rocketmq_processor_watermark",
        "gauge",
        "Requests that wait, by family.",
        [
            ({"processor": name}, lane.in_progress)
            for name, lane in (
                ("send", lanes.send),
                ("pull", lanes.pull),
                ("lite_pull", lanes.lite_pull),
                ("ack", lanes.ack),
                ("query_message", lanes.query),
                ("client_manager", lanes.client),
                ("heartbeat", lanes.heartbeat),
                ("transaction", lanes.end_transaction),
                ("consumer_manager", lanes.consumer),
                ("admin", lanes.admin),
                ("reply", lanes.reply),
            )
        ],
    )


def _network(state: BrokerState, listeners: Iterable[ServerStatistics]) -> Iterator[Family]:
    every = list(listeners)
    yield Family(
        "firearrow_connections",
        "gauge",
        "Connections that are open.",
        one(sum(each.connections for each in every)),
    )
    yield Family(
        "firearrow_connections_accepted_total",
        "counter",
        "Connections that were opened.",
        one(sum(each.accepted for each in every)),
    )
    yield Family(
        "firearrow_connections_rejected_total",
        "counter",
        "Connections over the limit.",
        one(sum(each.rejected for each in every)),
    )
    yield Family(
        "firearrow_held_bytes",
        "gauge",
        "Memory that peers tie up.",
        one(sum(each.held_bytes for each in every)),
    )
    yield Family(
        "firearrow_loop_lag_seconds",
        "gauge",
        "How late the event loop was.",
        one(state.statistics.lag_ms / 1_000),
    )
