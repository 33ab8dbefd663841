"""Certificates for tests: an authority, the certificates that it issues, and their files.

trustme makes them. Keys are written as PKCS #8, which Kafka's PEM stores want.
"""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

SERVER_NAMES = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class CertificateFiles:
    """A certificate with its private key, in PEM files that only their owner may read.

    certificate: the certificate and those of its issuers.
    both:        the key, and then the certificates.
    """

    certificate: Path
    key: Path
    both: Path

    def load_into(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self.certificate, self.key)


class Authority:
    """An authority of the test's own. `path` is its certificate in PEM."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._authority = trustme.CA(organization_name="Fencepost", organization_unit_name=name)
        self._folder = folder
        self.path = folder / f"{name}.pem"
        self._authority.cert_pem.write_to_path(self.path)

    def server(self, name: str = "server", *, names: tuple[str, ...] = SERVER_NAMES) -> CertificateFiles:
        """A certificate of a server that clients reach under `names`: addresses or names of hosts."""
        issued = self._authority.issue_cert(*names, common_name=name, organization_name="Fencepost")
        return self._written(name, issued)

    def expired_server(self, name: str = "expired", *, names: tuple[str, ...] = SERVER_NAMES) -> CertificateFiles:
        """A server's certificate whose time was over yesterday."""
        now = dt.datetime.now(dt.UTC)
        issued = self._authority.issue_cert(
            *names,
            common_name=name,
            not_before=now - dt.timedelta(days=30),
            not_after=now - dt.timedelta(days=1),
        )
        return self._written(name, issued)

    def client(self, name: str, *, organization: str = "Fencepost", unit: str = "Clients") -> CertificateFiles:
        """A certificate of a client, whose principal is `CN=name,OU=unit,O=organization`."""
        # Java refuses a certificate without any other name.
        issued = self._authority.issue_cert(
            f"{name}@fencepost.example",
            common_name=name,
            organization_name=organization,
            organization_unit_name=unit,
        )
        return self._written(name, issued)

    def context(self) -> ssl.SSLContext:
        """What a client that trusts this authority alone connects with."""
        return ssl.create_default_context(cafile=str(self.path))

    def _written(self, name: str, issued: trustme.LeafCert) -> CertificateFiles:
        key = load_pem_private_key(issued.private_key_pem.bytes(), password=None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        files = CertificateFiles(*(self._folder / f"{name}{ending}" for ending in (".crt", ".key", ".pem")))
        for path, content in ((files.certificate, chain), (files.key, key), (files.both, key + chain)):
            path.touch(mode=0o600)
            path.write_bytes(content)
        return files
