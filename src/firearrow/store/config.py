"""Settings of a store, by RocketMQ's names. One default differs: stored means on disk."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from firearrow.base.config import setting
from firearrow.model.delay import DELAY_LEVELS


class FlushDiskType(StrEnum):
    SYNC_FLUSH = "sync_flush"
    ASYNC_FLUSH = "async_flush"


@dataclass(frozen=True, slots=True)
class StoreConfig:
    store_path_root_dir: Path = setting(Path("~/store"))
    store_path_commit_log: Path | None = setting(None)  # else commitlog/ in the root
    mapped_file_size_commit_log: int = setting(1 << 30, least=4096)
    mapped_file_size_consume_queue: int = setting(6_000_000, least=20)
    max_hash_slot_num: int = setting(5_000_000, least=1)
    max_index_num: int = setting(20_000_000, least=2)
    message_index_enable: bool = setting(default=True)
    message_delay_level: str = setting(DELAY_LEVELS)
    timer_wheel_enable: bool = setting(default=True)
    timer_precision_ms: int = setting(1_000, least=1, most=1_000)
    timer_roll_window_slot: int = setting(172_800)
    timer_max_delay_sec: int = setting(259_200, least=1, remote=True)
    timer_flush_interval_ms: int = setting(1_000, least=1)
    timer_congest_num_each_slot: int = setting(2_147_483_647, least=1, remote=True)
    mapped_file_size_timer_log: int = setting(100 << 20, least=120)
    max_message_size: int = setting(4 * 1024 * 1024, least=1, remote=True)

    flush_disk_type: FlushDiskType = setting(FlushDiskType.SYNC_FLUSH)  # Apache: ASYNC_FLUSH
    flush_interval_commit_log: int = setting(500, least=1)
    flush_commit_log_least_pages: int = setting(4, least=0)
    flush_commit_log_thorough_interval: int = setting(10_000, least=1)
    flush_interval_consume_queue: int = setting(1_000, least=1)
    flush_consume_queue_thorough_interval: int = setting(60_000, least=1)

    max_transfer_bytes_on_message_in_memory: int = setting(262_144, least=1, remote=True)
    max_transfer_count_on_message_in_memory: int = setting(32, least=1, remote=True)
    max_transfer_bytes_on_message_in_disk: int = setting(65_536, least=1, remote=True)
    max_transfer_count_on_message_in_disk: int = setting(8, least=1, remote=True)
    max_filter_message_size: int = setting(16_000, least=20)
    access_message_in_memory_max_ratio: int = setting(40, least=0, most=100)

    file_reserved_time: int = setting(72, least=0, remote=True)  # hours
    delete_when: str = setting("04", remote=True)  # local hours, separated by semicolons
    disk_max_used_space_ratio: int = setting(75, least=1, most=100, remote=True)
    disk_space_clean_forcibly_ratio: int = setting(85, least=1, most=100)
    disk_space_warning_level_ratio: int = setting(90, least=1, most=100)
    clean_resource_interval: int = setting(10_000, least=1)
    delete_file_batch_max: int = setting(10, least=1)
    clean_file_forcibly_enable: bool = setting(default=True)
    disk_free_bytes_min: int = setting(64 * 1024 * 1024, least=0)  # ours: refuse writes below
