"""How replication is set up, by RocketMQ's defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HaSettings:
    transfer_bytes: int = 32 * 1024  # haTransferBatchSize
    heartbeat_ms: int = 5_000  # haSendHeartbeatInterval
    silence_ms: int = 20_000  # haHousekeepingInterval: then a connection is given up
    reconnect_ms: int = 5_000
    followers_max: int = 64  # ours: connections to the HA port
    with_epochs: bool = False  # RocketMQ 5's controller mode
    from_last_file: bool = False  # syncFromLastFile: a new slave with epochs wants no history
    is_learner: bool = False  # asyncLearner: never becomes a master
