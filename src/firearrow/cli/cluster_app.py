"""`firearrow cluster`: the application that other modules add commands to.

A module with more commands imports `cluster_app`, decorates functions, and gets its line in the
table `FAMILIES` of `root.py`.
"""

from __future__ import annotations

import typer

cluster_app = typer.Typer(
    name="cluster",
    help="Brokers and name servers: who is there, how they are, settings.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
