"""The argument tree. Commands are thin: they read settings, start a role and wait.

Needs the extra `server`; without it `firearrow` says so instead of failing with a traceback.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def run() -> NoReturn:
    """Entry point of ``firearrow`` and ``python -m firearrow``."""
    try:
        from firearrow.cli.commands import app  # noqa: PLC0415 - typer may not be installed
    except ModuleNotFoundError as error:
        sys.exit(f"firearrow: {error.name} is missing; install it: pip install 'firearrow[server]'")
    app()
    sys.exit(0)
