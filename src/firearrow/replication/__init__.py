"""The same log on more than one machine.

Start reading at `ha_wire.py` for the bytes, at `replication.py` for the parts.
"""
