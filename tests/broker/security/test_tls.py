"""Settings of TLS and what comes of them; their renewal while a broker runs."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from fencepost.broker.config import Settings, load_settings
from fencepost.broker.config.password import Password
from fencepost.broker.node import Node
from fencepost.broker.security import tls
from fencepost.broker.security.tls_contexts import TlsError, client_tls, server_tls
from tests.broker.supervision.planting import until
from tests.support.captured_events import capture_logs
from tests.support.certificates import Authority, CertificateFiles

LISTENER = "SSL"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> CertificateFiles:
    return authority.server()


def settings_of(server: CertificateFiles, **chosen: Any) -> Settings:
    return Settings(**({"ssl_keystore_location": str(server.both)} | chosen))


def problem_of(server: CertificateFiles, **chosen: Any) -> str:
    with pytest.raises(TlsError) as caught:
        server_tls(settings_of(server, **chosen), LISTENER)
    return str(caught.value)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory; both ends afterwards. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    )
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return ends


def write_pkcs12(server: CertificateFiles, path: Path, password: str) -> Path:
    key: Any = load_pem_private_key(server.key.read_bytes(), None)
    certificate, *others = x509.load_pem_x509_certificates(server.certificate.read_bytes())
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"server", key, certificate, others, BestAvailableEncryption(password.encode())
        )
    )
    return path


# Stores


def test_a_key_store_is_a_pem_file_or_the_settings_themselves_or_pkcs12(
    authority: Authority, server: CertificateFiles, tmp_path: Path
) -> None:
    inline = Settings(
        ssl_keystore_key=Password(server.key.read_text()),
        ssl_keystore_certificate_chain=Password(f"${{file:{server.certificate}}}"),
    )
    binary = Settings(
        ssl_keystore_type="PKCS12",
        ssl_keystore_location=str(write_pkcs12(server, tmp_path / "server.p12", "secret")),
        ssl_keystore_password=Password("secret"),
    )
    for settings in (settings_of(server), inline, binary):
        made = server_tls(settings, LISTENER)
        assert made.certificate.subject.startswith("CN=server,")
        _, client = shake_hands(made.context, authority.context())
        assert client.version() == "TLSv1.3"


def test_a_key_may_be_encrypted(authority: Authority, server: CertificateFiles, tmp_path: Path) -> None:
    key: Any = load_pem_private_key(server.key.read_bytes(), None)
    path = tmp_path / "encrypted.pem"
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"right"))
        + server.certificate.read_bytes()
    )
    location = {"ssl_keystore_location": str(path)}
    shake_hands(
        server_tls(settings_of(server, **location, ssl_key_password=Password("right")), LISTENER).context,
        authority.context(),
    )
    for password in (Password("wrong words"), None):
        problem = problem_of(server, **location, ssl_key_password=password)
        assert problem == ("listener SSL: ssl.keystore: the private key cannot be opened; check ssl.key.password")


def test_a_store_that_cannot_be_used_says_what_to_do(
    authority: Authority, server: CertificateFiles, tmp_path: Path
) -> None:
    pkcs12_path = write_pkcs12(server, tmp_path / "store.p12", "secret")
    jks, other = tmp_path / "store.jks", authority.server("other")
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    mixed = tmp_path / "mixed.pem"
    mixed.touch(mode=0o600)
    mixed.write_bytes(other.key.read_bytes() + server.certificate.read_bytes())
    location = "ssl_keystore_location"
    for chosen, part in (
        ({location: str(tmp_path / "none")}, f"{tmp_path}/none cannot be read: No such file or directory"),
        (
            {location: str(jks)},
            f"keytool -importkeystore -srckeystore {jks} -destkeystore {tmp_path}/store.p12 -deststoretype PKCS12",
        ),
        ({location: str(pkcs12_path)}, "if it is PKCS12, set ssl.keystore.type=PKCS12"),
        ({"ssl_keystore_type": "PKCS12"}, "if it is PEM, set ssl.keystore.type=PEM"),
        (
            {
                "ssl_keystore_type": "PKCS12",
                location: str(pkcs12_path),
                "ssl_keystore_password": Password("wrong words"),
            },
            "cannot be opened; check ssl.keystore.password",
        ),
        ({location: str(server.certificate)}, "there is no private key in PEM form"),
        ({location: str(server.key)}, "there is no certificate in PEM form"),
        ({location: str(mixed)}, "the private key does not belong to the first certificate"),
        ({"ssl_truststore_location": str(server.key)}, "there is no certificate"),
        ({"ssl_client_auth": "required"}, "ssl.client.auth=required needs ssl.truststore.location"),
        ({"ssl_principal_mapping_rules": "RULE:(/x/"}, "ssl.principal.mapping.rules: the pattern '(' cannot be used"),
        ({"ssl_principal_mapping_rules": "CN=(.*)"}, "expected rules such as RULE:^CN="),
        ({"ssl_key_password": Password("${env:NO_SUCH_VARIABLE}")}, "no variable NO_SUCH_VARIABLE"),
    ):
        problem = problem_of(server, **chosen)
        assert part in problem
        assert problem.startswith("listener SSL: ")
        assert "wrong words" not in problem
        assert "\n" not in problem


@pytest.mark.skipif(not shutil.which("keytool"), reason="no keytool")
def test_stores_that_keytool_makes_are_read_and_a_jks_after_the_line_that_its_refusal_gives(
    authority: Authority, server: CertificateFiles, tmp_path: Path
) -> None:
    def keytool(*arguments: str | Path) -> None:
        subprocess.run(["keytool", *map(str, arguments)], check=True, capture_output=True, timeout=60)

    jks, trusted = tmp_path / "server.jks", tmp_path / "trusted.p12"
    source = write_pkcs12(server, tmp_path / "source.p12", "secret")
    passwords = ("-srcstorepass", "secret", "-deststorepass", "secret")
    keytool("-importkeystore", "-srckeystore", source, "-destkeystore", jks, "-deststoretype", "JKS", *passwords)
    keytool(
        *("-importcert", "-noprompt", "-alias", "ca", "-file", authority.path, "-keystore", trusted),
        *("-storepass", "secret", "-storetype", "PKCS12"),
    )
    line = problem_of(server, ssl_keystore_location=str(jks)).split("`")[1]
    subprocess.run([*line.split(), *passwords], check=True, capture_output=True, timeout=60)
    settings = Settings(
        ssl_keystore_type="PKCS12",
        ssl_keystore_location=str(tmp_path / "server.p12"),
        ssl_keystore_password=Password("secret"),
        ssl_truststore_type="PKCS12",
        ssl_truststore_location=str(trusted),
        ssl_truststore_password=Password("secret"),
        ssl_client_auth="required",
    )
    client = authority.context()
    authority.client("alice").load_into(client)
    made = server_tls(settings, LISTENER)
    end, _ = shake_hands(made.context, client)
    assert made.principal_name(end) == "CN=alice,OU=Clients,O=Fencepost"


def test_a_key_that_all_may_read_is_warned_of(server: CertificateFiles, tmp_path: Path) -> None:
    path = tmp_path / "open.pem"
    path.write_bytes(server.both.read_bytes())
    path.chmod(0o644)
    with capture_logs() as events:
        server_tls(settings_of(server, ssl_keystore_location=str(path)), LISTENER)
    (event,) = events
    assert (event["event"], event["path"]) == ("private_key_is_readable_by_all", str(path))
    path.chmod(0o640)
    with capture_logs() as events:
        server_tls(settings_of(server, ssl_keystore_location=str(path)), LISTENER)
    assert not events


# Versions and ciphers


@pytest.mark.parametrize(
    ("chosen", "version", "cipher"),
    [
        ({}, "TLSv1.3", None),
        ({"ssl_enabled_protocols": ("TLSv1.2",)}, "TLSv1.2", None),
        ({"ssl_protocol": "TLSv1.2"}, "TLSv1.2", None),
        (
            {"ssl_cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")},
            "TLSv1.2",
            ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ),
        (
            {
                "ssl_cipher_suites": (
                    "TLS_AES_256_GCM_SHA384",
                    "TLS_AES_128_GCM_SHA256",
                    "TLS_CHACHA20_POLY1305_SHA256",
                )
            },
            "TLSv1.3",
            None,
        ),
    ],
)
def test_versions_and_cipher_suites_are_those_of_the_settings(
    authority: Authority, server: CertificateFiles, chosen: Any, version: str, cipher: tuple[str, ...] | None
) -> None:
    _, client = shake_hands(server_tls(settings_of(server, **chosen), LISTENER).context, authority.context())
    assert client.version() == version
    used = client.cipher()
    assert used is not None
    assert cipher is None or used[0] in cipher


def test_a_client_of_an_old_version_is_refused(authority: Authority, server: CertificateFiles) -> None:
    only_new = server_tls(settings_of(server, ssl_enabled_protocols=("TLSv1.3",)), LISTENER)
    client = authority.context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake_hands(only_new.context, client)


def test_versions_and_cipher_suites_that_cannot_be_had_are_refused(server: CertificateFiles) -> None:
    for chosen, part in (
        ({"ssl_cipher_suites": ("TLS_RSA_WITH_RC4_128_MD5",)}, "TLS_RSA_WITH_RC4_128_MD5 cannot be served; served are"),
        ({"ssl_cipher_suites": ("TLS_AES_128_GCM_SHA256",)}, "Python cannot choose among those of TLS 1.3"),
        (
            {"ssl_enabled_protocols": ("TLSv1.3",), "ssl_cipher_suites": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)},
            "none of them belongs to a version of ssl.enabled.protocols",
        ),
        ({"ssl_enabled_protocols": ("TLSv1.3",), "ssl_protocol": "TLSv1.2"}, "leaves none of ssl.enabled.protocols"),
    ):
        assert part in problem_of(server, **chosen)
    with pytest.raises(Exception, match=r"one or more of TLSv1\.2, TLSv1\.3"):
        load_settings(assignments=["ssl.enabled.protocols=TLSv1.1"])


def test_another_node_is_trusted_by_name(authority: Authority, server: CertificateFiles, tmp_path: Path) -> None:
    here = server_tls(settings_of(server), LISTENER).context
    trusting = settings_of(server, ssl_truststore_location=str(authority.path))
    shake_hands(here, client_tls(trusting, LISTENER))
    elsewhere = authority.server("elsewhere", names=("node.example",))
    there = server_tls(settings_of(elsewhere), LISTENER).context
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(there, client_tls(trusting, LISTENER))
    by_authority_only = settings_of(
        server, ssl_truststore_location=str(authority.path), ssl_endpoint_identification_algorithm=""
    )
    shake_hands(there, client_tls(by_authority_only, LISTENER))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(here, client_tls(settings_of(server), LISTENER))


# While a broker runs


class RunningBroker:
    """A node with a listener whose certificate is in `path`."""

    def __init__(self, directory: Path, authority: Authority, **chosen: Any) -> None:
        self.authority = authority
        self.path = directory / "in_force.pem"
        self.show("first")
        defaults: dict[str, Any] = {
            "log_dirs": str(directory / "data"),
            "listeners": ("SSL://127.0.0.1:0",),
            "ssl_keystore_location": str(self.path),
            "fencepost_shutdown_drain_ms": 200,
        }
        self.node = Node(Settings(**(defaults | chosen)))

    def show(self, name: str) -> None:
        self.path.touch(mode=0o600)
        self.path.write_bytes(self.authority.server(name).both.read_bytes())

    async def shown(self) -> str:
        """The common name of the certificate that a new connection sees."""

        def connect() -> str:
            address = self.node.address
            with (
                socket.create_connection((address.host, address.port)) as plain,
                self.authority.context().wrap_socket(plain, server_hostname="127.0.0.1") as client,
            ):
                subject: Any = client.getpeercert()["subject"]  # type: ignore[index]
                return str(dict(part[0] for part in subject)["commonName"])

        return await asyncio.to_thread(connect)

    async def renewed(self) -> None:
        assert self.node._tls is not None
        assert self.node._tls._renewing is not None
        await self.node._tls._renewing


async def test_a_certificate_is_read_again_on_demand_and_stays_where_that_fails(
    tmp_path: Path, authority: Authority
) -> None:
    broker = RunningBroker(tmp_path, authority)
    await broker.node.start()
    try:
        broker.show("second")
        assert await broker.shown() == "first"
        broker.node.reload_certificates()
        await broker.renewed()
        assert await broker.shown() == "second"
        broker.path.write_text("cut")
        with capture_logs() as events:
            broker.node.reload_certificates()
            await broker.renewed()
        assert [event["event"] for event in events] == ["tls_reload_failed"]
        assert "there is no private key" in events[0]["reason"]
        assert await broker.shown() == "second"
    finally:
        await broker.node.stop()


async def alter(node: Node, name: str, value: str) -> str | None:
    """Set a config of the broker; returns the reason why not."""
    from fencepost.broker.config import Alteration, alter_configs

    def change(current: Any) -> Any:
        return alter_configs(
            current, [Alteration(name, 0, value)], setting_of=lambda _: None, default_of=lambda _: None
        )

    _, message = await node.services.broker_configs.alter(str(node.settings.node_id), change, validate_only=False)
    return message


async def test_a_certificate_is_changed_by_a_dynamic_config_and_a_wrong_one_is_refused(
    tmp_path: Path, authority: Authority
) -> None:
    name = "listener.name.ssl.ssl.keystore.location"
    broker = RunningBroker(tmp_path, authority)
    await broker.node.start()
    try:
        other = authority.server("other").both
        assert await alter(broker.node, name, str(other)) is None
        await broker.renewed()
        assert await broker.shown() == "other"
        problem = await alter(broker.node, name, str(tmp_path / "none"))
        assert problem is not None
        assert "none cannot be read" in problem
        # Setting it again reads the file again, as in Kafka.
        other.write_bytes(authority.server("newer").both.read_bytes())
        assert await alter(broker.node, name, str(other)) is None
        await broker.renewed()
        assert await broker.shown() == "newer"
    finally:
        await broker.node.stop()
    # It is in force after a restart; if it is gone then, that of the settings is.
    restarted = RunningBroker(tmp_path, authority)
    await restarted.node.start()
    assert await restarted.shown() == "newer"
    await restarted.node.stop()
    other.unlink()
    restarted = RunningBroker(tmp_path, authority)
    with capture_logs() as events:
        await restarted.node.start()
    assert await restarted.shown() == "first"
    assert "tls_reload_failed" in [event["event"] for event in events]
    await restarted.node.stop()


async def test_the_expiry_of_certificates_is_logged_at_the_start_and_daily_in_the_last_month(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = RunningBroker(tmp_path, authority)
    monkeypatch.setattr(tls, "DAY_S", 0.02)
    with capture_logs() as events:
        await broker.node.start()
    try:
        (event,) = (event for event in events if event["event"] == "certificate_expires")
        assert (event["listener"], event["log_level"]) == ("SSL", "info")
        assert event["subject"].startswith("CN=first")
        with capture_logs() as events:
            await asyncio.sleep(0.1)
        assert not events
        with capture_logs() as events:
            monkeypatch.setattr(tls.ListenerTls, "days_left", property(lambda _: 29))
            await until(lambda: len(events) >= 2)
        assert {(event["event"], event["log_level"]) for event in events} == {("certificate_expires", "warning")}
    finally:
        await broker.node.stop()


async def test_a_certificate_that_has_expired_is_shown_and_logged_as_an_error(
    tmp_path: Path, authority: Authority
) -> None:
    broker = RunningBroker(tmp_path, authority)
    broker.path.write_bytes(authority.expired_server().both.read_bytes())
    with capture_logs() as events:
        await broker.node.start()
    await broker.node.stop()
    (event,) = (event for event in events if event["event"] == "certificate_expired")
    assert event["log_level"] == "error"
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    assert event["not_after"].startswith(f"{yesterday:%Y-%m-%d}")
