"""The smallest remoting client: one request, one answer, JSON headers, plain or TLS.

It reads from a name server what mqadmin has no command for, and asks many times per second without
a JVM. It shares no code with the package under test on purpose.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any, Final

GET_KV_CONFIG: Final = 101
GET_ROUTEINFO_BY_TOPIC: Final = 105
GET_BROKER_CLUSTER_INFO: Final = 106

SUCCESS: Final = 0
TOPIC_NOT_EXIST: Final = 17
QUERY_NOT_FOUND: Final = 22

# That of a 5.3 client; from 401 on the name server writes standard JSON routes.
CLIENT_VERSION: Final = 479
TIMEOUT_S: Final = 5.0

# Apache writes integer keys of a map without quotes, which is no JSON.
BARE_KEY: Final = re.compile(r"([{,]\s*)(-?\d+)\s*:")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request."""

    code: int
    remark: str
    fields: dict[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class NameServerClient:
    """Asks one name server; each call is a connection of its own."""

    port: int
    tls: bool = False

    def call(self, code: int, **fields: str) -> Answer:
        """Send one request and wait for its answer."""
        header = {
            "code": code,
            "flag": 0,
            "language": "JAVA",
            "opaque": 1,
            "serializeTypeCurrentRPC": "JSON",
            "version": CLIENT_VERSION,
            "extFields": fields,
        }
        text = json.dumps(header).encode()
        # | total length 4 | serialize type 1 | header length 3 | header | body |; JSON is type 0.
        frame = struct.pack(">ii", 4 + len(text), len(text)) + text
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as plain:
            if not self.tls:
                return exchange(plain, frame)
            with trusting_context().wrap_socket(plain) as encrypted:
                return exchange(encrypted, frame)

    def brokers(self) -> dict[str, dict[int, str]]:
        """All registered brokers: name, then id, then address."""
        table = self.call(GET_BROKER_CLUSTER_INFO).body["brokerAddrTable"]
        return {
            name: {int(number): address for number, address in data["brokerAddrs"].items()}
            for name, data in table.items()
        }

    def route(self, topic: str) -> Answer:
        """The route of a topic."""
        return self.call(GET_ROUTEINFO_BY_TOPIC, topic=topic)

    def kv_config(self, namespace: str, key: str) -> str | None:
        """A value of the name server's key-value table, or None."""
        answer = self.call(GET_KV_CONFIG, namespace=namespace, key=key)
        if answer.code == QUERY_NOT_FOUND:
            return None
        assert answer.code == SUCCESS, answer
        return answer.fields["value"]


def parse_json(text: str) -> Any:
    """Read JSON as Apache writes it."""
    return json.loads(BARE_KEY.sub(r'\1"\2":', text))


def trusting_context() -> ssl.SSLContext:
    """TLS as RocketMQ's test mode does it: encrypted, but the certificate is not checked."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def exchange(connection: socket.socket, frame: bytes) -> Answer:
    """Send a frame and read the one that answers it."""
    connection.sendall(frame)
    (length,) = struct.unpack(">i", receive(connection, 4))
    content = receive(connection, length)
    (mark,) = struct.unpack(">i", content[:4])
    header_length = mark & 0xFFFFFF
    header = json.loads(content[4 : 4 + header_length])
    body = content[4 + header_length :]
    return Answer(
        code=header["code"],
        remark=header.get("remark") or "",
        fields=header.get("extFields") or {},
        body=parse_json(body.decode()) if body else None,
    )


def receive(connection: socket.socket, length: int) -> bytes:
    """Read exactly so many bytes."""
    content = b""
    while len(content) < length:
        chunk = connection.recv(length - len(content))
        if not chunk:
            raise ConnectionError(f"closed after {len(content)} of {length} bytes")
        content += chunk
    return content
