"""What Spark says about a running query, as numbers that mean something to its owner. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one streaming query is.

    Args:
        lag: Messages that are there and not read yet, by queue ("topic@broker@queue"); empty where
            the source does not say.
    """

    name: str
    batches: int = 0
    last_batch: int = -1
    rows: int = 0
    input_rows_per_second: float = 0.0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    watermark: str | None = None
    dropped_late: int = 0
    state_rows: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    timestamp: str | None = None

    @property
    def lag_total(self) -> int:
        return sum(self.lag.values())

    def and_then(self, event: Mapping[str, Any]) -> Progress:
        """This, and one more progress event of Spark's (its JSON)."""
        batch = int(event.get("batchId", -1))
        operators = event.get("stateOperators") or []
        ran = "addBatch" in (event.get("durationMs") or {})  # an idle trigger has no batch
        if batch <= self.last_batch and ran:
            return self
        return replace(
            self,
            batches=self.batches + ran,
            last_batch=batch if ran else self.last_batch,
            rows=self.rows + int(event.get("numInputRows") or 0),
            input_rows_per_second=_number(event.get("inputRowsPerSecond")),
            rows_per_second=_number(event.get("processedRowsPerSecond")),
            batch_ms=int(event.get("batchDuration") or 0),
            watermark=(event.get("eventTime") or {}).get("watermark", self.watermark),
            dropped_late=self.dropped_late
            + sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in operators),
            state_rows=sum(int(one.get("numRowsTotal") or 0) for one in operators),
            lag=lag_of(event),
            timestamp=event.get("timestamp"),
        )

    def as_json(self) -> dict[str, object]:
        """As it stands in a status file; docs/formats/pipeline-status.md has the meaning."""
        return {
            "name": self.name,
            "batches": self.batches,
            "lastBatch": self.last_batch,
            "rows": self.rows,
            "inputRowsPerSecond": round(self.input_rows_per_second, 3),
            "processedRowsPerSecond": round(self.rows_per_second, 3),
            "batchMs": self.batch_ms,
            "watermark": self.watermark,
            "droppedLate": self.dropped_late,
            "stateRows": self.state_rows,
            "lag": dict(self.lag),
            "lagTotal": self.lag_total,
            "timestamp": self.timestamp,
        }


def lag_of(event: Mapping[str, Any]) -> dict[str, int]:
    """By queue, how far the head is from the end of the last batch."""
    lag: dict[str, int] = {}
    for source in event.get("sources") or []:
        end, head = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for queue, position in head.items():
            if queue in end:
                lag[queue] = lag.get(queue, 0) + max(0, position - end[queue])
    return lag


def _offsets(value: object) -> dict[str, int]:
    """Offsets as our sources write them: {"topic@broker@0": 12, "v": 1}."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, dict):
        return {}
    return {
        str(queue): position
        for queue, position in value.items()
        if isinstance(position, int) and "@" in str(queue)
    }


def _number(value: object) -> float:
    """A rate; Spark writes NaN and infinity for batches that took no time."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return 0.0
