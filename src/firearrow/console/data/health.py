"""Is the cluster well, why not, and what to do about it. Pure: from what brokers say of themselves.

A finding is a key of the texts with its values, so that it can be read in every language.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from firearrow.client.admin_results import BrokerInfo
    from firearrow.console.data.catalog import GroupRow

DISK_WARNING: Final = 0.75
DISK_CRITICAL: Final = 0.85  # RocketMQ begins to remove files by force there
LAG_WARNING: Final = 10_000
OPEN_TRANSACTION_MS: Final = 600_000
DISPATCH_BEHIND_BYTES: Final = 64 << 20
LATE_TIMERS_S: Final = 10
PUT_LATENCY_MS: Final = 1_000


class Severity(IntEnum):
    """How many points of a hundred it costs."""

    NOTICE = 5
    WARNING = 15
    CRITICAL = 50
    DOWN = 100  # nothing works

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """`key` names its sentence, `values` fill it; `fix` is a command line."""

    severity: Severity
    key: str
    values: dict[str, str] = field(default_factory=dict)
    fix: str = ""
    fix_values: dict[str, str] = field(default_factory=dict)


def score(findings: Iterable[Finding]) -> int:
    """100 is well, 0 is not."""
    return max(0, 100 - sum(int(one.severity) for one in findings))


def number_of(runtime: dict[str, str], key: str) -> float:
    """A value of a broker's table; 0 if it is not told."""
    with contextlib.suppress(ValueError, IndexError):
        return float(runtime.get(key, "0").split()[0])
    return 0.0


def findings(brokers: Sequence[BrokerInfo], groups: Iterable[GroupRow]) -> list[Finding]:
    """Everything that is wrong, worst first."""
    found: list[Finding] = []
    if not any(one.is_master for one in brokers):
        fix = "firearrow broker -n NAMESERVER"
        found.append(Finding(Severity.DOWN, "health.no_broker", fix=fix))
    for broker in brokers:
        found += of_broker(broker)
    for group in groups:
        found += of_group(group)
    return sorted(found, key=lambda one: -one.severity)


def of_broker(broker: BrokerInfo) -> list[Finding]:
    who = {"broker": f"{broker.name}:{broker.broker_id}"}
    if broker.error is not None:
        return [
            Finding(
                Severity.CRITICAL,
                "health.broker_silent",
                who | {"address": broker.address, "error": broker.error},
                fix="firearrow doctor",
            )
        ]
    runtime, found = broker.runtime, []
    disk = number_of(runtime, "commitLogDiskRatio")
    if disk >= DISK_WARNING:
        found.append(
            Finding(
                Severity.CRITICAL if disk >= DISK_CRITICAL else Severity.WARNING,
                "health.disk",
                who | {"percent": f"{disk * 100:.0f}"},
                fix=f"firearrow cluster set {broker.name} fileReservedTime=24",
            )
        )
    if (latency := number_of(runtime, "putLatency99")) >= PUT_LATENCY_MS:
        values = who | {"ms": f"{latency:.0f}"}
        found.append(Finding(Severity.WARNING, "health.slow_disk", values, fix="firearrow doctor"))
    if number_of(runtime, "dispatchBehindBytes") >= DISPATCH_BEHIND_BYTES:
        behind = f"{number_of(runtime, 'dispatchBehindBytes') / (1 << 20):.0f}"
        found.append(Finding(Severity.WARNING, "health.dispatch_behind", who | {"mib": behind}))
    if (late := number_of(runtime, "timerReadBehind")) >= LATE_TIMERS_S:
        found.append(
            Finding(Severity.WARNING, "health.timers_late", who | {"seconds": f"{late:.0f}"})
        )
    if number_of(runtime, "openTransactionAgeMax") >= OPEN_TRANSACTION_MS:
        minutes = f"{number_of(runtime, 'openTransactionAgeMax') / 60_000:.0f}"
        found.append(
            Finding(Severity.WARNING, "health.old_transaction", who | {"minutes": minutes})
        )
    if (parked := number_of(runtime, "parkedTransactions")) > 0:
        found.append(
            Finding(
                Severity.NOTICE,
                "health.parked_transactions",
                who | {"count": f"{parked:.0f}"},
                fix="firearrow msg tail TRANS_CHECK_MAX_TIME_TOPIC",
            )
        )
    return found


def of_group(group: GroupRow) -> list[Finding]:
    who = {"group": group.name}
    found = []
    if group.divergent:
        found.append(
            Finding(
                Severity.CRITICAL, "health.divergent", who, fix=f"firearrow group show {group.name}"
            )
        )
    if group.lag >= LAG_WARNING and not group.system:
        found.append(
            Finding(
                Severity.WARNING,
                "health.lag",
                who | {"count": f"{group.lag:,}"},
                fix=f"firearrow group lag {group.name} --watch",
            )
        )
    return found
