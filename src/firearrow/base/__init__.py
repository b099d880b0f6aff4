"""What every layer stands on, and what knows nothing about message queues.

Standard library only. Read `errors.py` first, then `runtime.py`.
"""
