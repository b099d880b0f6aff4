"""Measurements. `python -m benchmarks` runs them all; the fast suite runs them small."""
