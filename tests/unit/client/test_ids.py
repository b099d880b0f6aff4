from __future__ import annotations

import os
import re
import socket
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, NoReturn

import pytest

from firearrow.client.ids import (
    LOOPBACK,
    UniqueKeys,
    choose_ip,
    local_ip,
    make_client_id,
    new_instance_name,
)
from firearrow.testing.faults import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IP = bytes([10, 0, 0, 7])
CONSTANT = b"\xca\xfe\x00\x01"
DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def set_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def set_to(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    set_to("UTC0")
    yield set_to
    monkeypatch.undo()
    time.tzset()


def local_ms(text: str) -> int:
    return int(time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))) * 1000


def span_ms(key: str) -> int:
    """The milliseconds of a key."""
    return int(key[-12:-4], 16)


def test_a_key_holds_address_process_constant_time_and_counter() -> None:
    keys = UniqueKeys(IP, 0x1ABCD, ManualClock(1_793_577_601_000), constant=CONSTANT)
    # 2026-11-02 00:00:01: a day and a second, 86 401 000 ms
    assert keys.next() == "0A000007ABCDCAFE000105265FE80000"
    assert keys.next() == "0A000007ABCDCAFE000105265FE80001"


def test_a_key_with_an_ipv6_address_has_56_characters() -> None:
    keys = UniqueKeys(ip_address("2001:db8::7").packed, 1, ManualClock(), constant=CONSTANT)
    assert re.fullmatch(
        r"20010DB8000000000000000000000007" r"0001CAFE0001[0-9A-F]{12}", keys.next()
    )


def test_other_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="4 or 16 bytes, not 5"):
        UniqueKeys(b"local", 1, ManualClock())


def test_the_counter_starts_again_after_the_last_number() -> None:
    keys = UniqueKeys(IP, 1, ManualClock())
    given = [keys.next() for _ in range(0x10000)]
    assert len(set(given)) == 0x10000
    assert given[-1].endswith("FFFF")
    assert keys.next() == given[0]


async def test_many_keys_at_once_are_the_ones_that_would_have_come_one_by_one() -> None:
    clock = ManualClock()
    one_by_one, at_once = (UniqueKeys(IP, 1, clock, constant=CONSTANT) for _ in range(2))
    for count in (1, 2, 0, 300, 0x10000, 7):
        assert at_once.some(count) == [one_by_one.next() for _ in range(count)]
    await clock.advance(5)
    assert at_once.some(3) == [one_by_one.next() for _ in range(3)]


async def test_time_goes_on_within_a_key() -> None:
    clock = ManualClock()
    keys = UniqueKeys(IP, 1, clock)
    first = keys.next()
    await clock.advance(5)
    second = keys.next()
    assert span_ms(second) == span_ms(first) + 5
    assert (first[-4:], second[-4:]) == ("0000", "0001")


@pytest.mark.parametrize("month", range(1, 13))
async def test_time_starts_again_with_each_month(month: int) -> None:
    year, following = (2027, 1) if month == 12 else (2026, month + 1)
    clock = ManualClock(local_ms(f"{year}-{following:02d}-01 00:00:00") - 1)
    keys = UniqueKeys(IP, 1, clock)
    days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]
    assert span_ms(keys.next()) == days * DAY_MS - 1
    await clock.advance(1)
    assert span_ms(keys.next()) == 0
    await clock.advance(1)
    assert span_ms(keys.next()) == 1


def test_a_month_starts_at_local_midnight(set_time_zone: Callable[[str], None]) -> None:
    set_time_zone("CST-8")
    keys = UniqueKeys(IP, 1, ManualClock(local_ms("2026-11-01 00:00:00")))
    assert span_ms(keys.next()) == 0
    set_time_zone("UTC0")
    keys = UniqueKeys(IP, 1, ManualClock(local_ms("2026-10-31 16:00:00")))
    assert span_ms(keys.next()) == 30 * DAY_MS + 16 * 3_600_000


def test_a_month_that_is_an_hour_longer_is_measured_as_it_is(
    set_time_zone: Callable[[str], None],
) -> None:
    set_time_zone("CET-1CEST,M3.5.0,M10.5.0/3")
    keys = UniqueKeys(IP, 1, ManualClock(local_ms("2026-10-31 00:00:00")))
    assert span_ms(keys.next()) == 30 * DAY_MS + 3_600_000


def test_a_clock_that_is_set_back_into_the_month_before_gives_its_time() -> None:
    clock = SettableClock(local_ms("2026-11-01 00:00:00"))
    keys = UniqueKeys(IP, 1, clock)
    clock.set(local_ms("2026-10-31 23:59:59"))
    assert span_ms(keys.next()) == 31 * DAY_MS - 1000


class SettableClock(ManualClock):
    def set(self, now_ms: int) -> None:
        self._started_ms = now_ms


def test_processes_with_the_same_address_and_pid_still_give_different_keys() -> None:
    clock = ManualClock()
    given = {UniqueKeys(IP, 1, clock).next() for _ in range(20)}
    assert len(given) == 20


def test_a_client_id_has_a_unit_only_if_there_is_one() -> None:
    assert make_client_id("10.0.0.7", "DEFAULT") == "10.0.0.7@DEFAULT"
    assert make_client_id("10.0.0.7", "9#1", "u") == "10.0.0.7@9#1@u"
    assert make_client_id("10.0.0.7", "DEFAULT", " ") == "10.0.0.7@DEFAULT"


def test_instance_names_are_made_of_the_process_and_never_repeat() -> None:
    names = [new_instance_name() for _ in range(100)]
    assert len(set(names)) == 100
    assert all(re.fullmatch(rf"{os.getpid()}#\d+", name) for name in names)


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        ([], "127.0.0.1"),
        (["127.0.0.1", "169.254.3.4", "0.0.0.0"], "127.0.0.1"),
        (["::1", "fe80::1", "fec0::1", "::"], "127.0.0.1"),
        (["10.0.0.7", "192.168.1.1"], "10.0.0.7"),
        (["10.0.0.7", "2001:db9::1"], "2001:db9::1"),
        (["10.0.0.7", "2001:db9::1", "203.0.114.9"], "203.0.114.9"),
        (["172.16.0.1", "172.31.0.1", "172.32.0.1"], "172.32.0.1"),
        (["192.168.0.1", "192.169.0.1"], "192.169.0.1"),
        (["203.0.114.9", "203.0.114.10"], "203.0.114.9"),
    ],
)
def test_the_best_address_is_chosen(addresses: list[str], chosen: str) -> None:
    assert choose_ip(map(ip_address, addresses)) == ip_address(chosen).packed


def test_this_machine_has_an_address_of_its_own() -> None:
    found = ip_address(local_ip())
    with socket.socket(
        socket.AF_INET if found.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM
    ) as probe:
        probe.bind((str(found), 0))  # only ours can be bound


def test_a_machine_without_any_network_is_at_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", fail)
    monkeypatch.setattr(socket, "if_nameindex", list)
    assert local_ip() == LOOPBACK == bytes([127, 0, 0, 1])
