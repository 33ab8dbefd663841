"""Certificates of tests are what real TLS takes, and refuses when their time is over."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.support.certificates import Authority, CertificateFiles


def handshake(server: CertificateFiles, client: ssl.SSLContext) -> None:
    """A handshake in memory. Raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_into(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        context.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)


def test_a_client_accepts_the_servers_of_its_authority_alone(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    handshake(authority.server(), authority.context())
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed|unable to get local issuer"):
        handshake(authority.server(), other.context())


def test_a_certificate_whose_time_is_over_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(authority.expired_server(), authority.context())


def test_keys_are_read_by_their_owner_alone(tmp_path: Path) -> None:
    files = Authority(tmp_path).client("alice")
    assert {path.stat().st_mode & 0o777 for path in (files.certificate, files.key, files.both)} == {0o600}
    assert files.key.read_text().startswith("-----BEGIN PRIVATE KEY-----")
