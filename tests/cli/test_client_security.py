"""`--command-config` and `-X`: what the properties of Kafka's clients mean here, and what is said about wrong ones."""

from __future__ import annotations

import base64
import json
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificates

from fencepost.cli.client_properties import Property, WrongPropertiesError, read_file
from fencepost.cli.client_security import ClientSecurity, security_of
from fencepost.client.log_in import Credentials
from tests.support.certificates import Authority, CertificateFiles

PLAIN_LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="se=;cret";'
STORE_PASSWORD = "store"


def of(**properties: str) -> ClientSecurity:
    """What properties mean; `security_protocol` is `security.protocol`."""
    return security_of({name.replace("_", "."): Property(value, "it:1") for name, value in properties.items()})


def wrong(**properties: str) -> str:
    with pytest.raises(WrongPropertiesError) as caught:
        of(**properties)
    return str(caught.value)


def pkcs12(path: Path, files: CertificateFiles | None, authority: Authority) -> Path:
    """A PKCS12 file: with a key and its certificates, else with the authority's certificate alone."""
    trusted = load_pem_x509_certificates(authority.path.read_bytes())
    encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
    if files is None:
        content = serialize_key_and_certificates(None, None, None, trusted, encryption)
    else:
        key = load_pem_private_key(files.key.read_bytes(), None)
        own, *others = load_pem_x509_certificates(files.certificate.read_bytes())
        content = serialize_key_and_certificates(b"own", key, own, others, encryption)  # type: ignore[arg-type]
    path.write_bytes(content)
    return path


def does_handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost") -> None:
    """A whole handshake in memory. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(5):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ends[1].do_handshake()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def server(authority: Authority) -> ssl.SSLContext:
    """A server that wants a certificate of its clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.server().load_into(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(str(authority.path))
    return context


def test_without_properties_nothing_is_protected() -> None:
    assert of() == ClientSecurity()
    assert of(request_timeout_ms="5", group_id="x").client_options() == {"security_protocol": "PLAINTEXT"}


def test_a_file_of_kafkas_tools_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# of kafka-topics\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism : PLAIN\n"
        f"sasl.jaas.config=\\\n  {PLAIN_LOGIN}\n"
    )
    found = security_of(read_file(str(path)))
    assert found.client_options() == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "se=;cret",
    }
    assert "cret" not in repr(found)


def test_names_of_librdkafka_count_too() -> None:
    found = of(
        security_protocol="sasl_plaintext", sasl_mechanisms="SCRAM-SHA-512", sasl_username="a=b", sasl_password="c"
    )
    assert (found.mechanism, found.username, found.password) == ("SCRAM-SHA-512", "a=b", "c")
    assert found.client_options()["sasl_plain_username"] == "a=3Db"


def test_secrets_may_stand_in_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden\n")
    place = f"${{file:{tmp_path / 'secret'}}}"
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="bob" password="{place}";'
    found = of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=login)
    assert (found.username, found.password) == ("bob", "hidden")


def test_a_login_module_may_name_a_delegation_token() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'{module} required username="id" password="aG1hYw==" tokenauth="true";'
    found = of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=login)
    assert (found.username, found.password, found.is_delegated) == ("id", "aG1hYw==", True)
    assert found.own_options("me").credentials == Credentials("SCRAM-SHA-256", "id", "aG1hYw==", is_delegated=True)
    other = of(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=login.replace('"true"', '"false"'),
    )
    assert not other.is_delegated
    with pytest.raises(WrongPropertiesError, match=r"needs a sasl.mechanism of SCRAM"):
        of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=login)


@pytest.mark.parametrize("kind", ["PEM files", "PEM texts", "PKCS12", "librdkafka"])
def test_keys_and_certificates_are_read(
    tmp_path: Path, authority: Authority, server: ssl.SSLContext, kind: str
) -> None:
    own = authority.client("alice")
    kinds: dict[str, dict[str, Any]] = {
        "PEM files": {"ssl_truststore_location": authority.path, "ssl_keystore_location": own.both},
        "PEM texts": {
            "ssl_truststore_certificates": authority.path.read_text(),
            "ssl_keystore_certificate_chain": own.certificate.read_text(),
            "ssl_keystore_key": own.key.read_text(),
        },
        "PKCS12": {
            "ssl_truststore_location": pkcs12(tmp_path / "trust.p12", None, authority),
            "ssl_truststore_password": STORE_PASSWORD,
            "ssl_truststore_type": "PKCS12",
            "ssl_keystore_location": pkcs12(tmp_path / "key.p12", own, authority),
            "ssl_keystore_password": STORE_PASSWORD,
        },
        "librdkafka": {
            "ssl_ca_location": authority.path,
            "ssl_certificate_location": own.certificate,
            "ssl_key_location": own.key,
        },
    }
    found = of(security_protocol="SSL", **{name: str(value) for name, value in kinds[kind].items()})
    assert found.tls is not None
    does_handshake(found.tls, server)


def test_no_file_with_a_key_is_left_behind(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    os.mkdir(tmp_path / "temporary")
    of(security_protocol="SSL", ssl_keystore_location=str(authority.client("alice").both))
    assert os.listdir(tmp_path / "temporary") == []


@pytest.mark.parametrize("algorithm", ["https", "", None])
def test_the_hosts_name_is_compared_unless_that_is_switched_off(
    authority: Authority, server: ssl.SSLContext, algorithm: str | None
) -> None:
    server.verify_mode = ssl.CERT_NONE
    chosen = {} if algorithm is None else {"ssl_endpoint_identification_algorithm": algorithm}
    found = of(security_protocol="SSL", ssl_truststore_location=str(authority.path), **chosen)
    assert found.tls is not None
    if algorithm == "":
        does_handshake(found.tls, server, "elsewhere.example")
    else:
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            does_handshake(found.tls, server, "elsewhere.example")


def test_an_authority_that_is_not_named_is_not_trusted(tmp_path: Path, server: ssl.SSLContext) -> None:
    other = Authority(tmp_path / "other")
    found = of(security_protocol="SSL", ssl_truststore_location=str(other.path))
    assert found.tls is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        does_handshake(found.tls, server)


def test_what_is_wrong_is_named_with_its_place_and_the_remedy(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "old.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0")
    (tmp_path / "empty.pem").write_text("-----BEGIN nothing")
    with_tls = {"security_protocol": "SSL"}
    with_login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    for message, parts in (
        (wrong(security_protocol="TLS"), ["it:1", "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"]),
        (wrong(ssl_truststore_locatoin="/x"), ["did you mean ssl.truststore.location?"]),
        (wrong(ssl_truststore_location="/x"), ["counts only with security.protocol=SSL"]),
        (wrong(sasl_username="a"), ["counts only with security.protocol=SASL_SSL"]),
        (wrong(**with_tls, ssl_truststore_location="/no/file"), ["/no/file cannot be read"]),
        (wrong(**with_tls, ssl_truststore_location=str(tmp_path / "old.jks")), ["JKS", "keytool -importkeystore"]),
        (wrong(**with_tls, ssl_truststore_location=str(tmp_path / "empty.pem")), ["no certificate"]),
        (wrong(**with_tls, ssl_keystore_location=str(authority.path)), ["ssl.key.password"]),
        (wrong(**with_tls, ssl_enabled_protocols="TLSv1.1"), ["TLSv1.2, TLSv1.3"]),
        (wrong(**with_tls, ssl_cipher_suites="NO_SUCH"), ["OpenSSL"]),
        (wrong(**with_tls, ssl_endpoint_identification_algorithm="http"), ["expected https"]),
        (wrong(**with_tls, enable_ssl_certificate_verification="false"), ["always verified"]),
        (wrong(security_protocol="SASL_SSL"), ["needs sasl.mechanism"]),
        (wrong(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI"), ["Kerberos is not served"]),
        (wrong(**with_login), ["PlainLoginModule required"]),
        (wrong(**with_login, sasl_jaas_config='Module required username="a"'), ["semicolon"]),
        (wrong(**with_login, sasl_username="a", sasl_password="${file:/no/file}"), ["/no/file cannot be read"]),
        (wrong(security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER"), ["token.endpoint.url"]),
    ):
        assert all(part in message for part in parts), message
        assert "\n" not in message
    with pytest.raises(WrongPropertiesError, match="No such file"):
        read_file(str(tmp_path / "none.properties"))


def test_a_wrong_password_of_a_store_is_named_without_it(tmp_path: Path, authority: Authority) -> None:
    store = pkcs12(tmp_path / "trust.p12", None, authority)
    message = wrong(
        security_protocol="SSL", ssl_truststore_location=str(store), ssl_truststore_password="not-the-password"
    )
    assert "ssl.truststore.location" in message
    assert "not-the-password" not in message


def test_tokens_come_from_a_file_that_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    found = of(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"file://{path}",
    )
    assert found.token is not None
    assert found.token() == "first"
    path.write_text("second\n")
    assert found.token() == "second"
    assert found.client_options()["sasl_oauth_token_provider"].token() == "second"


def test_an_unsigned_token_has_the_claims_of_the_login_module() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    found = of(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=f'{module} required unsecuredLoginStringClaim_sub="alice";',
    )
    assert found.token is not None
    header, payload, signature = found.token().split(".")
    assert (json.loads(_decoded(header)), signature) == ({"alg": "none"}, "")
    assert json.loads(_decoded(payload))["sub"] == "alice"


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
