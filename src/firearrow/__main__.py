"""``python -m firearrow`` is the command line."""

from firearrow.cli.main import run

run()
