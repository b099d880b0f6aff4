"""RocketMQ's `mqadmin`: its command names, its flags, its columns. `table.py` lists them all."""
