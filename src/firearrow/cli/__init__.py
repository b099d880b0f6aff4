"""The command line: `firearrow …`. Nothing imports it."""
