"""What tests need, ours and our users': a broker in process, a clock to move, faults on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firearrow.testing.faults import ManualClock

if TYPE_CHECKING:
    from firearrow.testing.cluster import LocalCluster

__all__ = ["LocalCluster", "ManualClock"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the broker is loaded only where it is used
    if name == "LocalCluster":
        from firearrow.testing.cluster import LocalCluster  # noqa: PLC0415

        return LocalCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
