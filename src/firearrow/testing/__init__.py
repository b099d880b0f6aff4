"""What tests need, ours and our users': a clock to move by hand, and faults on demand."""

from firearrow.testing.faults import ManualClock

__all__ = ["ManualClock"]
