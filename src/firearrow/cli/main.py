"""Entry point. Commands are thin and loaded when called; see `root.py`.

Needs the extra `server`; without it `firearrow` says so instead of failing with a traceback.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def run() -> NoReturn:
    """Entry point of ``firearrow`` and ``python -m firearrow``."""
    try:
        from firearrow.cli.root import app  # noqa: PLC0415 - typer may not be installed

        app(prog_name="firearrow")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("firearrow"):
            raise
        sys.exit(f"firearrow: {error.name} is missing; install it: pip install 'firearrow[server]'")
    sys.exit(0)
