"""TLS on the port of plain remoting: who may use it, who must, and with which certificate.

Keys and defaults are RocketMQ's: both kinds of client are welcome (`permissive`), and without a
certificate the server makes one for itself, which RocketMQ clients in their test mode accept.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NoReturn

from firearrow.base.errors import ConfigError

HANDSHAKE: Final = 0x16  # first byte of a TLS hello; a frame never starts with it
SELF_SIGNED_DAYS: Final = 365


class TlsMode(StrEnum):
    DISABLED = "disabled"  # a TLS hello closes the connection
    PERMISSIVE = "permissive"  # both
    ENFORCING = "enforcing"  # plain text closes the connection


@dataclass(slots=True)
class TlsPolicy:
    """Decides per connection. The context is made when the first TLS client comes."""

    mode: TlsMode = TlsMode.PERMISSIVE
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None  # set: clients must present a certificate signed by it
    self_signed: bool = True  # RocketMQ's "test mode": without a certificate, make one
    _context: ssl.SSLContext | None = None

    def refusal(self, first_byte: int) -> str:
        """Why a connection that starts with this byte is not welcome; empty when it is."""
        if first_byte == HANDSHAKE:
            if self.mode is TlsMode.DISABLED:
                return "TLS is disabled here (tls.server.mode=disabled)"
        elif self.mode is TlsMode.ENFORCING:
            return "plain text is refused here (tls.server.mode=enforcing)"
        return ""

    def context(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = self._make_context()
        return self._context

    def _make_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, _refuse_passphrase)
            elif self.self_signed:
                _load_self_signed(context)
            else:
                raise ConfigError(
                    "a TLS client came, but there is no certificate: set tls.server.certPath and "
                    "tls.server.keyPath, or tls.test.mode.enable=true for a self-signed one"
                )
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"the TLS certificate cannot be loaded: {error}{self._what_to_check()}"
            ) from error
        return context

    def _what_to_check(self) -> str:
        """The settings behind a failure; OpenSSL names neither file nor setting."""
        paths = {
            "tls.server.certPath": self.certificate,
            "tls.server.keyPath": self.key,
            "tls.server.trustCertPath": self.client_ca,
        }
        given = [f"{key}={path}" for key, path in paths.items() if path is not None]
        return f"; check {', '.join(given)}" if given else ""


def client_context(
    *, ca: Path | None, certificate: Path | None, key: Path | None, keys: str
) -> ssl.SSLContext:
    """For a client of a server that must prove who it is; `keys` names the settings in errors."""
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key, _refuse_passphrase)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{keys}: a TLS file cannot be loaded: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _refuse_passphrase() -> NoReturn:
    # Without this OpenSSL asks on the terminal, and the whole server waits for the answer.
    raise ConfigError(
        "a TLS key (as tls.server.keyPath names one) is encrypted: give it without its passphrase, "
        "as from openssl pkey -in key.pem -out plain.pem"
    )


def _load_self_signed(context: ssl.SSLContext) -> None:
    certificate, key = self_signed_certificate("localhost")
    # The ssl module reads certificates from files only; the folder is private and gone at once.
    with tempfile.TemporaryDirectory(prefix="firearrow-tls-") as folder:
        path = Path(folder) / "server.pem"
        path.touch(mode=0o600)
        path.write_bytes(key + certificate)
        context.load_cert_chain(path)


def self_signed_certificate(name: str) -> tuple[bytes, bytes]:
    """A certificate for `name` and loopback, and its key, both PEM. Not a proof of identity."""
    try:
        from cryptography import x509  # noqa: PLC0415 - only TLS without a certificate needs it
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "a self-signed certificate needs the package cryptography: "
            "pip install 'firearrow[server]', or set tls.server.certPath and tls.server.keyPath"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=SELF_SIGNED_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
