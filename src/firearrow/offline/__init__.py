"""Store directories looked at from outside: dumped, checked, rebuilt. Apache's or ours.

The commands behind `firearrow store`; no broker ever imports this. Read `directory.py` first: it
knows which files there are. `log_walk.py` reads the log, `derived.py` says what follows from it,
and `dump.py`, `check.py` and `rebuild.py` are the three tools.
"""
