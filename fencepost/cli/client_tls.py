"""TLS of the client commands: the certificates that `ssl.*` properties name, as PEM or PKCS12, in an SSLContext.

The first bytes of a file show its type; `ssl.truststore.type` and `ssl.keystore.type` are ignored.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from typing import Final

from fencepost.cli.client_properties import Properties, WrongPropertiesError, secret

_JKS: Final = b"\xfe\xed\xfe\xed"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(properties: Properties) -> ssl.SSLContext:
    """Make the context of a client. Raises WrongPropertiesError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _choose_versions(context, properties)
    ciphers = properties.get("ssl.cipher.suites")
    if ciphers is not None and ciphers.value.strip():
        try:
            context.set_ciphers(ciphers.value.replace(",", ":").replace(" ", ""))
        except ssl.SSLError:
            raise WrongPropertiesError(
                f"{ciphers.place}: ssl.cipher.suites={ciphers.value}: OpenSSL, which this program uses, knows none of "
                "them by these names"
            ) from None
    algorithm = properties.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None and algorithm.value.strip().lower() not in ("https", "", "none"):
        raise WrongPropertiesError(
            f"{algorithm.place}: ssl.endpoint.identification.algorithm={algorithm.value}: expected https, or nothing "
            "(then the host's name is not compared with the certificate)"
        )
    context.check_hostname = algorithm is None or algorithm.value.strip().lower() == "https"
    _trust(context, properties)
    _load_own(context, properties)
    return context


def _choose_versions(context: ssl.SSLContext, properties: Properties) -> None:
    name = "ssl.enabled.protocols" if "ssl.enabled.protocols" in properties else "ssl.protocol"
    found = properties.get(name)
    wanted = [] if found is None else [version.strip() for version in found.value.split(",") if version.strip()]
    if found is None or not wanted or wanted == ["TLS"]:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return
    for version in wanted:
        if version not in _VERSIONS:
            raise WrongPropertiesError(f"{found.place}: {name}={found.value}: served are {', '.join(_VERSIONS)}")
    versions = sorted(_VERSIONS[version] for version in wanted)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if name == "ssl.protocol":
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # it names the best one, not the only one


def _trust(context: ssl.SSLContext, properties: Properties) -> None:
    """Load the authorities: those that are named, else those of the system."""
    place, data, name = _data(properties, "ssl.truststore.certificates", "ssl.truststore.location")
    if data is None:
        context.load_default_certs()
        return
    if not data.lstrip().startswith(b"-----BEGIN"):
        _, data = _from_pkcs12(data, secret(properties, "ssl.truststore.password"), place, name)
    try:
        context.load_verify_locations(cadata=data.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        raise WrongPropertiesError(f"{place}: {name}: there is no certificate in it that can be read") from None


def _load_own(context: ssl.SSLContext, properties: Properties) -> None:
    """Load the client's own key and certificate, if there are any."""
    if "ssl.certificate.location" in properties:
        place, certificate, name = _data(properties, "", "ssl.certificate.location")
        _, key, _ = _data(properties, "", "ssl.key.location")
        pem = (key or b"") + b"\n" + (certificate or b"")
    elif "ssl.keystore.certificate.chain" in properties or "ssl.keystore.key" in properties:
        place, name = properties["ssl.keystore.key"].place if "ssl.keystore.key" in properties else "", "ssl.keystore"
        chain, own_key = (secret(properties, f"ssl.keystore.{part}") for part in ("certificate.chain", "key"))
        if chain is None or own_key is None:
            raise WrongPropertiesError("ssl.keystore.certificate.chain and ssl.keystore.key have to be there both")
        pem = f"{own_key}\n{chain}".encode()
    else:
        place, data, name = _data(properties, "", "ssl.keystore.location")
        if data is None:
            return
        if data.lstrip().startswith(b"-----BEGIN"):
            pem = data
        else:
            key, chain_pem = _from_pkcs12(data, secret(properties, "ssl.keystore.password"), place, name)
            pem = key + chain_pem
    password = secret(properties, "ssl.key.password") or secret(properties, "ssl.keystore.password") or ""
    with _file_of(pem) as path:
        try:
            context.load_cert_chain(path, password=password)
        except (ssl.SSLError, OSError):
            raise WrongPropertiesError(
                f"{place}: {name}: the key or its certificate cannot be read; a key with a password needs "
                "ssl.key.password, and both have to belong together"
            ) from None


def _data(properties: Properties, inline: str, location: str) -> tuple[str, bytes | None, str]:
    """Where the property is, its bytes, and its name. Raises WrongPropertiesError."""
    if inline in properties:
        text = secret(properties, inline)
        return properties[inline].place, (text or "").encode(), inline
    found = properties.get(location)
    if found is None:
        return "", None, location
    try:
        with open(found.value, "rb") as file:
            return found.place, file.read(), location
    except OSError as error:
        raise WrongPropertiesError(
            f"{found.place}: {location}: {found.value} cannot be read: {error.strerror}"
        ) from None


def _from_pkcs12(data: bytes, password: str | None, place: str, name: str) -> tuple[bytes, bytes]:
    """The key, unencrypted, and the certificates of a PKCS12 file, both as PEM."""
    if data.startswith(_JKS):
        raise WrongPropertiesError(
            f"{place}: {name}: the file is a JKS store, which only Java reads; make a PKCS12 one of it: "
            "keytool -importkeystore -srckeystore OLD.jks -destkeystore NEW.p12 -deststoretype PKCS12"
        )
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ModuleNotFoundError:
        raise WrongPropertiesError(
            f"{place}: {name}: a PKCS12 file needs the package cryptography: pip install 'fencepost[security]'; "
            "a PEM file does not"
        ) from None
    try:
        store = load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise WrongPropertiesError(
            f"{place}: {name}: neither PEM nor a PKCS12 file that opens with its password"
        ) from None
    key = b""
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificates = [store.cert, *store.additional_certs]
    return key, b"".join(one.certificate.public_bytes(Encoding.PEM) for one in certificates if one is not None)


@contextlib.contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    """A file that only this user can read, for as long as the context lasts: `ssl` reads keys from files alone."""
    descriptor, path = tempfile.mkstemp()
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)
