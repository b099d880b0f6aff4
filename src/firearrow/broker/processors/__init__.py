"""Requests by family. `request_table.py` names every one of them."""
