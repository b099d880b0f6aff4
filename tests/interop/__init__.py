"""Tests with unmodified RocketMQ software as the peer; README.md says what they need."""
