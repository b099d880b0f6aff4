"""Every request that a broker answers. Read this file first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.broker.processors.broker_admin import BrokerAdmin
from firearrow.broker.processors.consumers_admin import ConsumerAdmin
from firearrow.broker.processors.filters_admin import FilterAdmin
from firearrow.broker.processors.groups_admin import GroupAdmin
from firearrow.broker.processors.membership import MembershipProcessor
from firearrow.broker.processors.offsets import OffsetsProcessor
from firearrow.broker.processors.progress import ProgressProcessor
from firearrow.broker.processors.queries import QueryProcessor
from firearrow.broker.processors.replicas import ReplicaProcessor
from firearrow.broker.processors.reply import ReplyProcessor
from firearrow.broker.processors.retry import RetryProcessor
from firearrow.broker.processors.staging import StagingProcessor
from firearrow.broker.processors.timers import TimerProcessor
from firearrow.broker.processors.topics_admin import TopicAdmin
from firearrow.broker.processors.transaction import TransactionProcessor
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from firearrow.broker.processors.pull import PullProcessor
    from firearrow.broker.processors.send import SendProcessor
    from firearrow.broker.state import BrokerState
    from firearrow.net.router import Handler


def request_table(
    state: BrokerState, send: SendProcessor, pull: PullProcessor
) -> dict[int, Handler]:
    """Request code to handler."""
    return (
        requests_of_clients(state, send, pull)
        | requests_of_administrators(state)
        | requests_about_replicas(state)
    )


def requests_of_clients(
    state: BrokerState, send: SendProcessor, pull: PullProcessor
) -> dict[int, Handler]:
    retry = RetryProcessor(state)
    members, offsets = MembershipProcessor(state), OffsetsProcessor(state)
    transactions, replies = TransactionProcessor(state), ReplyProcessor(state, send)
    timers = TimerProcessor(state)
    return {
        # Producing
        RequestCode.SEND_MESSAGE: send.handle_send,
        RequestCode.SEND_MESSAGE_V2: send.handle_send,
        RequestCode.SEND_BATCH_MESSAGE: send.handle_send,
        RequestCode.STAGE_BATCH: send.handle_stage,
        RequestCode.END_TRANSACTION: transactions.handle_end,
        RequestCode.END_TRANSACTIONS: StagingProcessor(state).handle_end_many,
        RequestCode.SEND_REPLY_MESSAGE: replies.handle_reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: replies.handle_reply,
        RequestCode.RECALL_MESSAGE: timers.handle_recall,
        # Consuming
        RequestCode.PULL_MESSAGE: pull.handle_pull,
        RequestCode.LITE_PULL_MESSAGE: pull.handle_pull,
        RequestCode.CONSUMER_SEND_MSG_BACK: retry.handle_send_back,
        RequestCode.LOCK_BATCH_MQ: members.handle_lock,
        RequestCode.UNLOCK_BATCH_MQ: members.handle_unlock,
        # Membership
        RequestCode.HEART_BEAT: members.handle_heartbeat,
        RequestCode.UNREGISTER_CLIENT: members.handle_unregister,
        RequestCode.CHECK_CLIENT_CONFIG: members.handle_check_client,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: members.handle_consumer_list,
        # Offsets
        RequestCode.QUERY_CONSUMER_OFFSET: offsets.handle_query,
        RequestCode.UPDATE_CONSUMER_OFFSET: offsets.handle_update,
        RequestCode.GET_MAX_OFFSET: offsets.handle_max,
        RequestCode.GET_MIN_OFFSET: offsets.handle_min,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.handle_search,
        RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.handle_earliest,
    }


def requests_of_administrators(state: BrokerState) -> dict[int, Handler]:
    """What tools and dashboards ask for; clients use some of it too."""
    queries, topics, groups = QueryProcessor(state), TopicAdmin(state), GroupAdmin(state)
    progress, consumers, broker = ProgressProcessor(state), ConsumerAdmin(state), BrokerAdmin(state)
    filters = FilterAdmin(state)
    transactions, timers = TransactionProcessor(state), TimerProcessor(state)
    return {
        # Queries
        RequestCode.QUERY_MESSAGE: queries.handle_by_key,
        RequestCode.VIEW_MESSAGE_BY_ID: queries.handle_by_id,
        RequestCode.QUERY_CONSUME_QUEUE: queries.handle_consume_queue,
        # Topics
        RequestCode.UPDATE_AND_CREATE_TOPIC: topics.handle_create,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: topics.handle_create_list,
        RequestCode.DELETE_TOPIC_IN_BROKER: topics.handle_delete,
        RequestCode.GET_ALL_TOPIC_CONFIG: topics.handle_all,
        RequestCode.GET_TOPIC_CONFIG: topics.handle_config,
        RequestCode.GET_TOPIC_STATS_INFO: topics.handle_stats,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: topics.handle_groups,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: topics.handle_topics_of_group,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.handle_system_list,
        RequestCode.CLEAN_UNUSED_TOPIC: topics.handle_clean_unused,
        # Groups
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.handle_put,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups.handle_put_list,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.handle_delete,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.handle_get,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.handle_all,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: groups.handle_forbidden,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: groups.handle_consumers,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: groups.handle_producers,
        RequestCode.GET_ALL_PRODUCER_INFO: groups.handle_all_producers,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: groups.handle_subscription,
        # Progress
        RequestCode.GET_CONSUME_STATS: progress.handle_stats,
        RequestCode.GET_BROKER_CONSUME_STATS: progress.handle_broker_stats,
        RequestCode.GROUP_PROGRESS: progress.handle_all,
        RequestCode.QUERY_CONSUME_TIME_SPAN: progress.handle_time_span,
        RequestCode.QUERY_CORRECTION_OFFSET: progress.handle_correction,
        RequestCode.CLONE_GROUP_OFFSET: progress.handle_clone,
        RequestCode.GET_ALL_CONSUMER_OFFSET: progress.handle_all_offsets,
        RequestCode.GET_ALL_DELAY_OFFSET: progress.handle_all_delays,
        # Transactions
        RequestCode.RESUME_CHECK_HALF_MESSAGE: transactions.handle_resume,
        RequestCode.FIREARROW_GET_OPEN_TRANSACTIONS: transactions.handle_open,
        # The timer
        RequestCode.GET_TIMER_CHECK_POINT: timers.handle_checkpoint,
        RequestCode.GET_TIMER_METRICS: timers.handle_metrics,
        RequestCode.LIST_TIMERS: timers.handle_list,
        # Live consumers
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: consumers.handle_reset,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: consumers.handle_status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: consumers.handle_running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: consumers.handle_consume_directly,
        RequestCode.QUERY_ASSIGNMENT: consumers.handle_assignment,
        RequestCode.SET_MESSAGE_REQUEST_MODE: consumers.handle_set_mode,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: consumers.handle_modes,
        # Filters written in Python
        RequestCode.INSTALL_FILTER: filters.handle_install,
        RequestCode.REMOVE_FILTER: filters.handle_remove,
        RequestCode.LIST_FILTERS: filters.handle_list,
        # The broker itself
        RequestCode.GET_BROKER_CONFIG: broker.handle_get_config,
        RequestCode.UPDATE_BROKER_CONFIG: broker.handle_update_config,
        RequestCode.GET_BROKER_RUNTIME_INFO: broker.handle_runtime_info,
        RequestCode.VIEW_BROKER_STATS_DATA: broker.handle_statistics,
        RequestCode.GET_BROKER_HA_STATUS: broker.handle_ha_status,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: broker.handle_clean_queues,
        RequestCode.DELETE_EXPIRED_COMMITLOG: broker.handle_clean_log,
    }


def requests_about_replicas(state: BrokerState) -> dict[int, Handler]:
    """What controllers and slaves ask for."""
    replicas = ReplicaProcessor(state)
    return {
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED: replicas.handle_role_changed,
        RequestCode.EXCHANGE_BROKER_HA_INFO: replicas.handle_ha_info,
        RequestCode.GET_BROKER_EPOCH_CACHE: replicas.handle_epochs,
    }
