"""Which old files go, and when the disk is too full to take more.

    used space       what happens
    > warning (90 %)   nothing is written any more; files go at once, expired or not
    > forcibly (85 %)  files go at once, expired or not
    > max used (75 %)  expired files go, whatever the hour
    below              expired files go at the hours of `deleteWhen`

A file is expired when nobody has written to it for `fileReservedTime` hours. The oldest goes first,
the last one never. Free bytes have a floor of their own, because ten per cent of a small disk is
less than one file, and ten per cent of a large one is much.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.store.config import StoreConfig

log = logging.getLogger(__name__)

HOUR_MS: Final = 3_600_000
# RocketMQ takes no larger ratios than these, whatever is configured.
WARNING_RATIO_RANGE: Final = (35, 90)
FORCIBLY_RATIO_RANGE: Final = (30, 85)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do now. `refuse` says why nothing may be written; empty: go on."""

    delete: int
    refuse: str


@dataclass(frozen=True, slots=True)
class OldFile:
    """A log file that could go: not the last one."""

    first_offset: int
    modified_ms: int


def used_ratio(used_bytes: int, free_bytes: int) -> int:
    """Per cent of the disk in use, rounded up, as RocketMQ compares it."""
    total = used_bytes + free_bytes
    return -(-100 * used_bytes // total) if total else 0


def decide_retention(
    config: StoreConfig,
    files: Sequence[OldFile],
    *,
    used_bytes: int,
    free_bytes: int,
    now_ms: int,
    manual: bool = False,
) -> Verdict:
    """How many of the oldest files go, and whether writing must stop. Pure."""
    ratio = used_ratio(used_bytes, free_bytes)
    warning = _clamped(config.disk_space_warning_level_ratio, WARNING_RATIO_RANGE)
    forcibly = _clamped(config.disk_space_clean_forcibly_ratio, FORCIBLY_RATIO_RANGE)
    below_floor = free_bytes < config.disk_free_bytes_min
    refuse = ""
    if ratio > warning:
        refuse = (
            f"the disk is {ratio} % full; {warning} % is the limit (diskSpaceWarningLevelRatio)"
        )
    elif below_floor:
        refuse = (
            f"{free_bytes >> 20} MiB are free on the disk; "
            f"{config.disk_free_bytes_min >> 20} MiB are kept (diskFreeBytesMin)"
        )
    at_once = (ratio > forcibly or below_floor) and config.clean_file_forcibly_enable
    due = (
        manual
        or at_once
        or ratio > config.disk_max_used_space_ratio
        or is_delete_hour(config.delete_when, now_ms)
    )
    if not due:
        return Verdict(0, refuse)
    expiry_ms = now_ms - config.file_reserved_time * HOUR_MS
    delete = 0
    for file in files[: config.delete_file_batch_max]:
        if not at_once and file.modified_ms > expiry_ms:
            break
        delete += 1
    return Verdict(delete, refuse)


def _clamped(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])


def is_delete_hour(delete_when: str, now_ms: int) -> bool:
    """Whether the local hour is one of ``"04;16"``."""
    hour = time.localtime(now_ms / 1000).tm_hour
    return any(text.strip().isdecimal() and int(text) == hour for text in delete_when.split(";"))
