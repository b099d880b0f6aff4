"""The console's port. Apart from the rest, so that `up` can open it without loading NiceGUI."""

from __future__ import annotations

import socket

from firearrow.base.errors import ConfigError


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; ConfigError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"the console cannot listen on {host}:{port}: {error.strerror or error}"
        ) from error
    return sock


def url_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
