from __future__ import annotations

import ipaddress
import ssl
import sys
from typing import TYPE_CHECKING

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from firearrow.base.errors import ConfigError
from firearrow.net.tls import HANDSHAKE, TlsMode, TlsPolicy, self_signed_certificate

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = 0x00  # first byte of the length of any frame below 16 MiB


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates and keys, good and bad."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1", "localhost")
    other = authority.issue_cert("elsewhere.example")
    (folder / "ca.pem").write_bytes(authority.cert_pem.bytes())
    (folder / "server.pem").write_bytes(server.cert_chain_pems[0].bytes())
    (folder / "server.key").write_bytes(server.private_key_pem.bytes())
    (folder / "both.pem").write_bytes(server.private_key_and_cert_chain_pem.bytes())
    (folder / "other.key").write_bytes(other.private_key_pem.bytes())
    (folder / "nonsense.pem").write_bytes(b"-----BEGIN NONSENSE-----\n")
    key = serialization.load_pem_private_key(server.private_key_pem.bytes(), password=None)
    (folder / "encrypted.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    return folder


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A TLS handshake without a network: what one end writes, the other reads."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = client.wrap_bio(to_client, to_server, server_hostname=name)
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [theirs, ours]
    for turn in range(20):
        end = waiting[turn % len(waiting)]
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        waiting.remove(end)
        if not waiting:
            # A server of TLS 1.3 looks at the client's certificate after the client is done.
            return ours, theirs
    raise AssertionError("the handshake does not end")


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "ca.pem"))


@pytest.mark.parametrize(
    ("mode", "first_byte", "refusal"),
    [
        (TlsMode.DISABLED, PLAIN, ""),
        (TlsMode.DISABLED, HANDSHAKE, "TLS is disabled here (tls.server.mode=disabled)"),
        (TlsMode.PERMISSIVE, PLAIN, ""),
        (TlsMode.PERMISSIVE, HANDSHAKE, ""),
        (TlsMode.ENFORCING, PLAIN, "plain text is refused here (tls.server.mode=enforcing)"),
        (TlsMode.ENFORCING, HANDSHAKE, ""),
        (TlsMode.ENFORCING, 0xFF, "plain text is refused here (tls.server.mode=enforcing)"),
    ],
)
def test_first_byte_and_mode_decide_who_is_refused(
    mode: TlsMode, first_byte: int, refusal: str
) -> None:
    assert TlsPolicy(mode=mode).refusal(first_byte) == refusal


@pytest.mark.parametrize(("certificate", "key"), [("server.pem", "server.key"), ("both.pem", None)])
def test_certificate_from_files_is_the_one_that_clients_see(
    files: Path, certificate: str, key: str | None
) -> None:
    policy = TlsPolicy(certificate=files / certificate, key=None if key is None else files / key)
    _, client = shake_hands(policy.context(), trusting(files), "127.0.0.1")
    seen = client.getpeercert(binary_form=True)
    assert seen is not None
    expected = x509.load_pem_x509_certificate((files / "server.pem").read_bytes())
    assert seen == expected.public_bytes(serialization.Encoding.DER)


def test_context_is_made_once() -> None:
    policy = TlsPolicy()
    assert policy.context() is policy.context()


def test_versions_before_tls_1_2_are_not_offered() -> None:
    assert TlsPolicy().context().minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("certificate", "key", "client_ca"),
    [
        ("missing.pem", "server.key", None),
        ("server.pem", "missing.key", None),
        ("nonsense.pem", "server.key", None),
        ("server.pem", "nonsense.pem", None),
        ("server.pem", "other.key", None),
        ("server.pem", None, None),
        ("server.pem", "server.key", "missing.pem"),
        ("server.pem", "server.key", "nonsense.pem"),
    ],
)
def test_file_that_cannot_be_loaded_is_reported_with_the_settings_to_check(
    files: Path, certificate: str, key: str | None, client_ca: str | None
) -> None:
    policy = TlsPolicy(
        certificate=files / certificate,
        key=None if key is None else files / key,
        client_ca=None if client_ca is None else files / client_ca,
    )
    with pytest.raises(ConfigError) as refused:
        policy.context()
    message = str(refused.value)
    assert message.startswith("the TLS certificate cannot be loaded: ")
    assert f"tls.server.certPath={files / certificate}" in message
    assert ("tls.server.keyPath=" in message) is (key is not None)
    assert ("tls.server.trustCertPath=" in message) is (client_ca is not None)


def test_encrypted_key_is_refused_and_nobody_is_asked_for_its_passphrase(files: Path) -> None:
    policy = TlsPolicy(certificate=files / "server.pem", key=files / "encrypted.key")
    with pytest.raises(ConfigError, match=r"tls\.server\.keyPath.*is encrypted.*openssl pkey"):
        policy.context()


def test_failed_attempt_is_repeated_once_the_files_are_mended(files: Path, tmp_path: Path) -> None:
    policy = TlsPolicy(certificate=tmp_path / "server.pem")
    with pytest.raises(ConfigError):
        policy.context()
    (tmp_path / "server.pem").write_bytes((files / "both.pem").read_bytes())
    shake_hands(policy.context(), trusting(files), "localhost")


def test_no_certificate_and_no_test_mode_is_an_error_with_both_ways_out() -> None:
    policy = TlsPolicy(self_signed=False)
    with pytest.raises(ConfigError) as refused:
        policy.context()
    for key in ("tls.server.certPath", "tls.server.keyPath", "tls.test.mode.enable=true"):
        assert key in str(refused.value)


def test_client_without_a_certificate_is_refused_where_an_authority_is_set(files: Path) -> None:
    policy = TlsPolicy(certificate=files / "both.pem", client_ca=files / "ca.pem")
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(policy.context(), trusting(files), "localhost")
    welcome = trusting(files)
    welcome.load_cert_chain(files / "both.pem")
    server, _ = shake_hands(policy.context(), welcome, "localhost")
    assert server.getpeercert()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_self_made_certificate_serves_a_client_that_trusts_it(name: str) -> None:
    policy = TlsPolicy()
    _, blind = shake_hands(policy.context(), accept_anything(), name)
    seen = blind.getpeercert(binary_form=True)
    assert seen is not None
    trusting_it = ssl.create_default_context(cadata=seen)
    shake_hands(policy.context(), trusting_it, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(policy.context(), ssl.create_default_context(), name)


def accept_anything() -> ssl.SSLContext:
    """What RocketMQ clients in their test mode do."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_self_signed_certificates_name_their_host_and_share_no_key() -> None:
    first, first_key = self_signed_certificate("mq.example")
    second, second_key = self_signed_certificate("mq.example")
    assert first_key != second_key
    certificate = x509.load_pem_x509_certificate(first)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["mq.example"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert certificate.serial_number != x509.load_pem_x509_certificate(second).serial_number


def test_missing_package_for_self_signed_certificates_is_named_with_a_way_around(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"firearrow\[server\].*tls\.server\.certPath"):
        TlsPolicy().context()
