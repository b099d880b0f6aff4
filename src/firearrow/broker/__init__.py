"""The broker: stores messages, answers clients. Read `request_table.py` first, then `broker.py`.

State lives in modules of its own (topic_table, group_table, offset_table, clients, queue_locks,
held_pulls) that know neither sockets nor requests; `processors/` turn requests into calls of them.
"""
