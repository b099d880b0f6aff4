"""Messages on disk, in RocketMQ's files. No network; no request is ever seen here.

Read `store.py` first: it is the one door for everyone above. `disk.py` is the one door to the
machine below.
"""
