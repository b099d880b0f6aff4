"""Counters and gauges as Prometheus reads them, and the port where it does."""
