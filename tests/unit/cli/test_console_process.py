from __future__ import annotations

import pytest

from firearrow.cli.console_process import console_port


@pytest.mark.parametrize(
    ("wanted", "ports", "off", "expected"),
    [
        (None, (9876, 10911), False, 8080),  # `firearrow up`, and nothing else
        (None, (0, 0), False, None),  # as tests start it
        (None, (9876, 10921), False, None),
        (0, (0, 0), False, 0),
        (9000, (9876, 10911), False, 9000),
        (9000, (9876, 10911), True, None),
        (None, (9876, 10911), True, None),
    ],
)
def test_the_console_is_there_by_default_only_where_everything_is_as_usual(
    wanted: int | None, ports: tuple[int, int], off: bool, expected: int | None
) -> None:
    assert console_port(wanted, *ports, off=off) == expected
