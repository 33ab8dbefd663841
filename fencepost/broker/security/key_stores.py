"""Key stores and trust stores: a private key with its certificates, and the authorities that are trusted, as PEM.

PEM is read as it is; PKCS12 is taken apart by the library `cryptography`, which is imported for it only. JKS is refused
with the command that makes PKCS12 of it.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.kernel.events import get_logger

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

log = get_logger(__name__)

_JKS_STARTS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE = b"\x30"
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


class StoreError(Exception):
    """A store that cannot be used: one line with the reason and the remedy, and no secret."""


class KeyStore(NamedTuple):
    """A private key with its certificates.

    pem:      the key and the certificates, its owner's first.
    password: the key's; None if it is not encrypted.
    """

    pem: bytes
    password: str | None


class StoreSettings(NamedTuple):
    """The settings of a store.

    purpose: `keystore` or `truststore`, for the names of settings in errors.
    kind:    PEM or PKCS12.
    inline:  PEM text in the settings themselves, which takes the place of the file; else "".
    """

    purpose: str
    kind: str
    location: str
    password: str | None
    inline: str


def read_key_store(store: StoreSettings, key_password: str | None) -> KeyStore:
    """Raises StoreError."""
    if store.inline:
        pem, where = store.inline.encode(), "ssl.keystore.key and ssl.keystore.certificate.chain"
    else:
        where = store.location
        content = _content(store)
        _warn_of_readers(store.location)
        pem = _pem_of_pkcs12(store, content) if store.kind == "PKCS12" else content
    if not _PRIVATE_KEY.search(pem):
        raise StoreError(f"{where}: there is no private key in PEM form; it begins with -----BEGIN PRIVATE KEY-----")
    if not CERTIFICATE.search(pem):
        raise StoreError(f"{where}: there is no certificate in PEM form; put it behind the private key")
    return KeyStore(pem, key_password)


def read_trust_store(store: StoreSettings) -> bytes:
    """The trusted certificates, in PEM form. Raises StoreError."""
    if store.inline:
        pem, where = store.inline.encode(), "ssl.truststore.certificates"
    else:
        content, where = _content(store), store.location
        pem = _pem_of_pkcs12(store, content) if store.kind == "PKCS12" else content
    certificates = CERTIFICATE.findall(pem)
    if not certificates:
        raise StoreError(f"{where}: there is no certificate; it holds those of the authorities to trust")
    return b"\n".join(certificates)


def _content(store: StoreSettings) -> bytes:
    """The file, if it is of the kind in the settings."""
    setting = f"ssl.{store.purpose}.location"
    try:
        with open(store.location, "rb") as file:
            content = file.read()
    except OSError as error:
        raise StoreError(f"{setting}: {store.location} cannot be read: {error.strerror}") from None
    if content.startswith(_JKS_STARTS):
        new_path = os.path.splitext(store.location)[0] + ".p12"
        raise StoreError(
            f"{setting}: {store.location} is a JKS store, which is not read; convert it with `keytool -importkeystore "
            f"-srckeystore {store.location} -destkeystore {new_path} -deststoretype PKCS12`, name the new file, and "
            f"set ssl.{store.purpose}.type=PKCS12"
        )
    if content.startswith(_DER_SEQUENCE) and store.kind == "PEM":
        raise StoreError(f"{setting}: {store.location} is no PEM; if it is PKCS12, set ssl.{store.purpose}.type=PKCS12")
    if not content.startswith(_DER_SEQUENCE) and store.kind == "PKCS12":
        raise StoreError(f"{setting}: {store.location} is no PKCS12; if it is PEM, set ssl.{store.purpose}.type=PEM")
    return content


def _warn_of_readers(path: str) -> None:
    mode = os.stat(path).st_mode
    if mode & stat.S_IROTH:
        log.warning(
            "private_key_is_readable_by_all", path=path, hint=f"let only the broker's user read it: chmod 600 {path}"
        )


def _pem_of_pkcs12(store: StoreSettings, content: bytes) -> bytes:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise StoreError(
            f"ssl.{store.purpose}.type: PKCS12 needs the package cryptography: pip install 'fencepost[security]'; or "
            f"convert the file with `openssl pkcs12 -in {store.location} -out store.pem`, and use PEM"
        ) from None
    password = None if store.password is None else store.password.encode()
    try:
        parts: PKCS12KeyAndCertificates = load_pkcs12(content, password)
    except ValueError:
        # Java writes stores without a key whose certificates only are encrypted; for OpenSSL the cause is the same.
        raise StoreError(
            f"ssl.{store.purpose}.location: {store.location} cannot be opened; check ssl.{store.purpose}.password"
        ) from None
    pem = b""
    key: Any = parts.key
    if key is not None:
        pem += key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    for held in (parts.cert, *parts.additional_certs):
        if held is not None:
            pem += held.certificate.public_bytes(serialization.Encoding.PEM)
    return pem
