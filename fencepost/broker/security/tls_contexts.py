"""TLS of one listener by its settings: the `SSLContext` for its clients, and the one for a client of another node.

Nothing here is imported by a broker without TLS: OpenSSL takes 8 MB.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from fencepost.broker.config.password import Password
from fencepost.broker.config.settings import Settings
from fencepost.broker.security.distinguished_name import CertificateFacts, read_certificate
from fencepost.broker.security.key_stores import (
    CERTIFICATE,
    KeyStore,
    StoreError,
    StoreSettings,
    read_key_store,
    read_trust_store,
)
from fencepost.broker.security.principal_mapping import NO_RULE, PrincipalMapping

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

# OpenSSL uses all three of TLS 1.3, and Python cannot choose among them.
_SUITES_OF_TLS_1_3: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)
# The suites of TLS 1.2 that OpenSSL has by default and that have forward secrecy, by their IANA names.
_SUITES_OF_TLS_1_2: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
}


ON_FAILED_HANDSHAKE: Final[ContextVar[Callable[[bytes], None]]] = ContextVar("on_failed_handshake")
"""Takes the bytes that tell the client why its handshake fails: event loops close without sending them."""


class _Handshakes(ssl.SSLObject):
    """TLS of one connection, which passes on its alert if the handshake fails."""

    _sent: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            take = ON_FAILED_HANDSHAKE.get(None)
            if take is not None:
                take(self._sent.read())
            raise


class _ServerContext(ssl.SSLContext):
    sslobject_class = _Handshakes

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *rest: Any, **named: Any) -> ssl.SSLObject:
        tls = super().wrap_bio(incoming, outgoing, *rest, **named)
        tls._sent = outgoing  # type: ignore[attr-defined]  # noqa: SLF001  # of the class above
        return tls


class TlsError(Exception):
    """Settings of TLS that cannot be put in force: one line with the listener, the reason and the remedy, no secret."""


class ServerTls(NamedTuple):
    """TLS for the clients of a listener.

    certificate: the broker's own.
    """

    context: ssl.SSLContext
    mapping: PrincipalMapping
    certificate: CertificateFacts

    def principal_name(self, tls: ssl.SSLObject) -> str | None:
        """The principal's name, without its type, of a client after its handshake; None without a certificate.

        Raises ValueError if its certificate gives no name; one line for the log.
        """
        der = tls.getpeercert(binary_form=True)
        if der is None:
            return None
        subject = read_certificate(der).subject
        name = self.mapping.name_of(subject)
        if name is None:
            raise ValueError(f"its certificate is of {subject!r}, and {NO_RULE}")
        return name


def server_tls(settings: Settings, listener: str) -> ServerTls:
    """Read the files that a listener's settings name, and make the context of its handshakes. Raises TlsError."""
    try:
        return _server_tls(settings, listener)
    except (StoreError, ValueError) as error:
        raise TlsError(f"listener {listener}: {error}") from None


def client_tls(settings: Settings, listener: str) -> ssl.SSLContext:
    """This broker's context for connections to another node's listener. Raises TlsError."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = settings.for_listener("ssl.endpoint.identification.algorithm", listener) == "https"
        _choose_versions_and_ciphers(context, settings, listener)
        if not _trust(context, settings, listener):
            context.load_default_certs()
        _show(context, _key_store(settings, listener))
    except (StoreError, ValueError) as error:
        raise TlsError(f"listener {listener}: {error}") from None
    return context


def _server_tls(settings: Settings, listener: str) -> ServerTls:
    context = _ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # A resumed session would not show again that its client's certificate is valid, nor meet a renewed trust store.
    context.num_tickets = 0
    _choose_versions_and_ciphers(context, settings, listener)
    store = _key_store(settings, listener)
    _show(context, store)
    client_auth = settings.for_listener("ssl.client.auth", listener)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if not _trust(context, settings, listener) and client_auth != "none":
        raise ValueError(
            f"ssl.client.auth={client_auth} needs ssl.truststore.location: the certificates of the authorities whose "
            "clients are accepted"
        )
    try:
        mapping = PrincipalMapping(settings.for_listener("ssl.principal.mapping.rules", listener))
    except ValueError as error:
        raise ValueError(f"ssl.principal.mapping.rules: {error}") from None
    return ServerTls(context, mapping, _first_certificate(store))


def _choose_versions_and_ciphers(context: ssl.SSLContext, settings: Settings, listener: str) -> None:
    enabled: Sequence[str] = settings.for_listener("ssl.enabled.protocols", listener)
    newest = settings.for_listener("ssl.protocol", listener)
    versions = {_VERSIONS[name] for name in enabled}
    if newest in _VERSIONS:
        versions = {version for version in versions if version <= _VERSIONS[newest]}
        if not versions:
            raise ValueError(f"ssl.protocol={newest} leaves none of ssl.enabled.protocols={','.join(enabled)}")
    suites: Sequence[str] = settings.for_listener("ssl.cipher.suites", listener)
    if suites:
        versions = _choose_ciphers(context, suites, versions)
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _choose_ciphers(
    context: ssl.SSLContext, suites: Sequence[str], versions: set[ssl.TLSVersion]
) -> set[ssl.TLSVersion]:
    """Choose the suites; returns the versions that have one of them. Raises ValueError."""
    unknown = [suite for suite in suites if suite not in _SUITES_OF_TLS_1_3 and suite not in _SUITES_OF_TLS_1_2]
    if unknown:
        known = ", ".join([*sorted(_SUITES_OF_TLS_1_3), *_SUITES_OF_TLS_1_2])
        raise ValueError(f"ssl.cipher.suites: {', '.join(unknown)} cannot be served; served are {known}")
    of_1_3 = _SUITES_OF_TLS_1_3.intersection(suites)
    if of_1_3 and of_1_3 != _SUITES_OF_TLS_1_3 and ssl.TLSVersion.TLSv1_3 in versions:
        raise ValueError(
            "ssl.cipher.suites: Python cannot choose among those of TLS 1.3; name "
            f"{', '.join(sorted(_SUITES_OF_TLS_1_3))}, or none of them for TLS 1.2 alone"
        )
    of_1_2 = [_SUITES_OF_TLS_1_2[suite] for suite in suites if suite in _SUITES_OF_TLS_1_2]
    having = {ssl.TLSVersion.TLSv1_3: bool(of_1_3), ssl.TLSVersion.TLSv1_2: bool(of_1_2)}
    left = {version for version in versions if having[version]}
    if not left:
        raise ValueError("ssl.cipher.suites: none of them belongs to a version of ssl.enabled.protocols")
    if of_1_2:
        context.set_ciphers(":".join(of_1_2))
    return left


def _key_store(settings: Settings, listener: str) -> KeyStore:
    key = _secret(settings, "ssl.keystore.key", listener)
    chain = _secret(settings, "ssl.keystore.certificate.chain", listener)
    store = StoreSettings(
        "keystore",
        settings.for_listener("ssl.keystore.type", listener),
        settings.for_listener("ssl.keystore.location", listener),
        _secret(settings, "ssl.keystore.password", listener),
        f"{key}\n{chain}" if key and chain else "",
    )
    return read_key_store(store, _secret(settings, "ssl.key.password", listener))


def _trust(context: ssl.SSLContext, settings: Settings, listener: str) -> bool:
    """Trust the certificates of the trust store; returns whether there is one."""
    store = StoreSettings(
        "truststore",
        settings.for_listener("ssl.truststore.type", listener),
        settings.for_listener("ssl.truststore.location", listener),
        _secret(settings, "ssl.truststore.password", listener),
        _secret(settings, "ssl.truststore.certificates", listener) or "",
    )
    if not store.inline and not store.location:
        return False
    try:
        context.load_verify_locations(cadata=read_trust_store(store).decode("ascii", errors="replace"))
    except ssl.SSLError as error:
        raise ValueError(f"ssl.truststore.location: a certificate cannot be read: {error.reason}") from None
    # As in Java, every certificate in a trust store is trusted, that of an intermediate authority, too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return True


def _secret(settings: Settings, name: str, listener: str) -> str | None:
    secret: Password | None = settings.for_listener(name, listener)
    try:
        return None if secret is None else secret.reveal()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _show(context: ssl.SSLContext, store: KeyStore) -> None:
    """Show the certificate of a store to others. Raises ValueError."""
    password = store.password or ""
    try:
        with _as_file(store.pem) as path:
            context.load_cert_chain(path, password=lambda: password)  # never asked for on the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = "the private key does not belong to the first certificate"
        elif b"ENCRYPTED" in store.pem:
            reason = "the private key cannot be opened; check ssl.key.password"
        else:
            reason = f"the private key or a certificate cannot be read: {error.reason or error}"
        raise ValueError(f"ssl.keystore: {reason}") from None


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """A file for OpenSSL, which reads keys from files only: in memory if the system has that, else removed soon."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("key")
        try:
            os.write(descriptor, pem)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        yield file.name


def _first_certificate(store: KeyStore) -> CertificateFacts:
    found = CERTIFICATE.search(store.pem)
    assert found is not None  # `read_key_store` has seen it
    return read_certificate(ssl.PEM_cert_to_DER_cert(found[0].decode("ascii")))
