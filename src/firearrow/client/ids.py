"""Names that must not be given twice: ids of messages, clients and instances.

A message's own id (its property UNIQ_KEY) is printed as upper-case hex:

    | IP 4 or 16 | process 2 | constant of the process 4 | milliseconds 4 | counter 2 |

The milliseconds count from local midnight of the first day of the month, so that readers can work
out when the message was made; a time yet to come belongs to the month before.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import sys
import time
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from firearrow.hot import number_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from firearrow.base.runtime import Clock

# --- messages ---------------------------------------------------------------------------------

_HEX: Final = tuple(f"{number:02X}" for number in range(256))  # half the time of formatting


class UniqueKeys:
    """Gives out the UNIQ_KEYs of one process. A child after a fork makes one with its own pid."""

    __slots__ = (
        "_counter",
        "_fixed",
        "_month_end_ms",
        "_month_start_ms",
        "_now_ms",
        "_stamped",
        "_stamped_ms",
    )

    def __init__(self, ip: bytes, pid: int, clock: Clock, *, constant: bytes | None = None) -> None:
        """`constant` is random unless told: containers may well share both address and pid."""
        if len(ip) not in {4, 16}:
            raise ValueError(f"an IP address has 4 or 16 bytes, not {len(ip)}")
        constant = secrets.token_bytes(4) if constant is None else constant
        assert len(constant) == 4
        self._fixed = (ip + struct.pack(">H", pid & 0xFFFF) + constant).hex().upper()
        self._counter = 0
        self._now_ms = clock.now_ms
        self._month_start_ms = self._month_end_ms = 0
        self._stamp(clock.now_ms())

    def next(self) -> str:
        """One more key. It runs for every message sent: most calls append the counter only."""
        now_ms = self._now_ms()
        if now_ms != self._stamped_ms:
            self._stamp(now_ms)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._stamped}{_HEX[counter >> 8]}{_HEX[counter & 0xFF]}"

    def some(self, count: int) -> list[str]:
        """As many new keys, for a batch."""
        keys: list[str] = []
        while len(keys) < count:
            keys.append(self.next())
            # No more of a millisecond than it has numbers for.
            first = self._counter
            last = min(first + count - len(keys), 1 << 16)
            keys += number_keys(self._stamped, first, last)
            self._counter = last & 0xFFFF
        return keys

    def _stamp(self, now_ms: int) -> None:
        """Have everything but the counter ready, as long as the clock shows this millisecond."""
        if not self._month_start_ms <= now_ms < self._month_end_ms:  # clocks are also set back
            self._month_start_ms, self._month_end_ms = _month_of(now_ms)
        self._stamped = f"{self._fixed}{now_ms - self._month_start_ms:08X}"
        self._stamped_ms = now_ms


def _month_of(now_ms: int) -> tuple[int, int]:
    """When the current month began and ends, on this machine's calendar."""
    year, month, *_ = time.localtime(now_ms // 1000)
    after = (year + 1, 1) if month == 12 else (year, month + 1)
    start_ms, end_ms = (
        int(time.mktime((*first, 1, 0, 0, 0, 0, 0, -1))) * 1000 for first in ((year, month), after)
    )
    assert start_ms <= now_ms < end_ms
    return start_ms, end_ms


# --- clients ----------------------------------------------------------------------------------


def make_client_id(ip_text: str, instance_name: str, unit_name: str | None = None) -> str:
    """``address@instance`` or ``address@instance@unit``: what brokers know a client by."""
    client_id = f"{ip_text}@{instance_name}"
    return f"{client_id}@{unit_name}" if unit_name and unit_name.strip() else client_id


def new_instance_name() -> str:
    """``<pid>#<nanoseconds>``: no other instance, in this process or a later one, has it."""
    return f"{os.getpid()}#{time.perf_counter_ns()}"


# --- this machine -----------------------------------------------------------------------------

LOOPBACK: Final = IPv4Address("127.0.0.1").packed

# Nobody is at these addresses, and nothing is sent: a datagram socket that is connected to one
# merely knows which of our own addresses would be used.
_FAR_AWAY: Final = (
    (socket.AF_INET, "192.0.2.1"),
    (socket.AF_INET6, "2001:db8::1"),
)
_VIRTUAL_INTERFACES: Final = ("docker", "br-", "veth", "virbr")
_GET_FLAGS: Final = 0x8913  # Linux: SIOCGIFFLAGS
_GET_ADDRESS: Final = 0x8915  # Linux: SIOCGIFADDR
_UP: Final = 0x1
_LOOPBACK: Final = 0x8


def local_ip() -> bytes:
    """The address by which others most likely know this machine; loopback if it has no other."""
    return choose_ip([*_routed_addresses(), *_interface_addresses()])


def choose_ip(addresses: Iterable[IPv4Address | IPv6Address]) -> bytes:
    """The first of the best kind: public IPv4, then IPv6, then private IPv4, then loopback."""
    ranked = [(rank, address) for address in addresses if (rank := _rank(address)) is not None]
    return min(ranked, key=lambda one: one[0])[1].packed if ranked else LOOPBACK


def _rank(address: IPv4Address | IPv6Address) -> int | None:
    if address.is_loopback or address.is_unspecified or address.is_link_local:
        return None
    if isinstance(address, IPv6Address):
        return None if address.is_site_local else 1
    first, second, *_ = address.packed
    is_private = (
        first == 10 or (first, second) == (192, 168) or (first == 172 and 16 <= second < 32)
    )
    return 2 if is_private else 0


def _routed_addresses() -> Iterator[IPv4Address | IPv6Address]:
    for family, target in _FAR_AWAY:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                yield ip_address(probe.getsockname()[0].partition("%")[0])
        except OSError:
            continue  # no route of this kind


def _interface_addresses() -> Iterator[IPv4Address]:
    """IPv4 addresses of interfaces that are up, for networks without a way out."""
    if sys.platform != "linux":
        return
    import fcntl  # noqa: PLC0415 - does not exist everywhere

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            if name.startswith(_VIRTUAL_INTERFACES):
                continue
            asked = struct.pack("256s", name.encode()[:15])
            try:
                # | name 16 | flags 2 | ...    and    | name 16 | family 2 | port 2 | IP 4 | ...
                (flags,) = struct.unpack_from(
                    "=H", fcntl.ioctl(any_socket.fileno(), _GET_FLAGS, asked), 16
                )
                if flags & _UP and not flags & _LOOPBACK:
                    found = fcntl.ioctl(any_socket.fileno(), _GET_ADDRESS, asked)
                    yield IPv4Address(found[20:24])
            except OSError:
                continue  # gone meanwhile, or without an IPv4 address
