"""The name server: who serves which topic.

`route_table.py` holds the state and does no I/O, `kv_config.py` the small persisted table,
`handlers.py` the request table, `server.py` the assembly. Read `handlers.py` first.
"""
