"""Every page: where it is, what it is called, who may see it. Start reading here."""

from __future__ import annotations

from typing import Final

from firearrow.console.pages import (
    PageEntry,
    audit,
    broker,
    brokers,
    dlq,
    group,
    groups,
    message,
    messages,
    overview,
    pipelines,
    scheduled,
    topic,
    topics,
    transactions,
    users,
)
from firearrow.console.users import Role

PAGES: Final = (
    PageEntry("/", "overview", "monitor_heart", overview.build),
    PageEntry("/topics", "topics", "topic", topics.build),
    PageEntry("/topic", "topic", "topic", topic.build, under="/topics"),
    PageEntry("/groups", "groups", "groups", groups.build),
    PageEntry("/group", "group", "groups", group.build, under="/groups"),
    PageEntry("/messages", "messages", "mail", messages.build),
    PageEntry("/message", "message", "mail", message.build, under="/messages"),
    PageEntry("/dlq", "dlq", "report", dlq.build),
    PageEntry("/scheduled", "scheduled", "schedule", scheduled.build),
    PageEntry("/transactions", "transactions", "sync_alt", transactions.build),
    PageEntry("/brokers", "brokers", "dns", brokers.build),
    PageEntry("/broker", "broker", "dns", broker.build, under="/brokers"),
    PageEntry("/pipelines", "pipelines", "account_tree", pipelines.build),
    PageEntry("/users", "users", "manage_accounts", users.build, role=Role.ADMIN),
    PageEntry("/audit", "audit", "history_edu", audit.build, role=Role.OPERATOR),
)
