"""Who may reach a server at all: this machine only, unless somebody decides otherwise."""

from __future__ import annotations

import ipaddress

from firearrow.base.errors import ConfigError


def refuse_open_address(host: str) -> None:
    """Loopback is open to this machine only; anything else needs a decision."""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise ConfigError(
            f"bindAddress {host} is reachable from other machines and there is no authentication: "
            "bind to 127.0.0.1, or say --insecure if the network itself is trusted"
        )
