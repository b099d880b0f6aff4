"""What the words mean: errors, topics, groups, messages. Frozen data and pure functions, no I/O.

Everything above imports it; it imports `base` and `hot` only. Read `errors.py` and `topic.py`.
"""
