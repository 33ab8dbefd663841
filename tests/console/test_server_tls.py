"""TLS of the console's own port."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from fencepost.console.options import OptionError, TlsFiles
from fencepost.console.server_tls import ServerTls
from tests.support.certificates import Authority, CertificateFiles


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = "localhost") -> ssl.SSLObject:
    """Return the client's side after a handshake in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(3):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return sides[0]


def name_of(tls: ServerTls, authority: Authority) -> str:
    return name_in(shake_hands(tls.context, authority.context()))


def name_in(side: ssl.SSLObject) -> str:
    certificate = side.getpeercert()
    assert certificate is not None
    found = re.search(r"'commonName', '(\w+)'", str(certificate["subject"]))
    assert found is not None
    return found[1]


def replace(files: TlsFiles, issued: CertificateFiles) -> None:
    """Put other files into their places, as tools that renew certificates do."""
    for target, source in ((files.certificate, issued.certificate), (files.key, issued.key)):
        assert target is not None
        fresh = target.with_suffix(".fresh")
        fresh.write_bytes(source.read_bytes())
        fresh.replace(target)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> TlsFiles:
    found = TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key")
    replace(found, authority.server("first"))
    return found


def test_a_replaced_certificate_is_used_from_the_next_handshake_on(authority: Authority, files: TlsFiles) -> None:
    tls = ServerTls(files)
    assert name_of(tls, authority) == "first"
    assert tls.reload() is None
    replace(files, authority.server("second"))
    assert name_of(tls, authority) == "first"
    assert tls.reload() == f"the certificate was read again from {files.certificate} and {files.key}"
    assert name_of(tls, authority) == "second"
    assert tls.reload() is None


def test_a_bad_pair_keeps_the_one_before_and_has_one_message(authority: Authority, files: TlsFiles) -> None:
    tls = ServerTls(files)
    assert files.key is not None
    kept = files.key.read_bytes()
    files.key.write_bytes(authority.server("other").key.read_bytes())
    assert "the certificate stays the one before" in str(tls.reload())
    assert tls.reload() is None
    assert name_of(tls, authority) == "first"
    files.key.unlink()
    assert f"{files.key} cannot be read: no such file or directory" in str(tls.reload())
    files.key.write_text("half a ke")
    assert "a certificate, or its key, is not there in PEM" in str(tls.reload())
    assert name_of(tls, authority) == "first"
    files.key.write_bytes(kept)
    assert "was read again" in str(tls.reload())


def test_an_encrypted_key_needs_its_password(authority: Authority, files: TlsFiles) -> None:
    assert files.key is not None
    key = load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption("geheim ü".encode()))
    )
    with pytest.raises(OptionError, match="is encrypted: name the file of its password"):
        ServerTls(files)
    with pytest.raises(OptionError, match="cannot be used: the password is not the one of the key"):
        ServerTls(TlsFiles(files.certificate, files.key, "wrong"))
    assert name_of(ServerTls(TlsFiles(files.certificate, files.key, "geheim ü")), authority) == "first"


def test_one_file_may_have_both(authority: Authority) -> None:
    assert name_of(ServerTls(TlsFiles(authority.server("both").both)), authority) == "both"


def test_versions_before_1_2_are_refused(authority: Authority, files: TlsFiles) -> None:
    tls = ServerTls(files)
    old = authority.context()
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        shake_hands(tls.context, old)


@pytest.mark.parametrize("name", ["", "directory"])
def test_files_that_are_none_are_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(OptionError, match="cannot be"):
        ServerTls(TlsFiles(tmp_path / (name or "missing.pem")))


def test_a_client_that_says_no_name_gets_the_certificate_too(authority: Authority, files: TlsFiles) -> None:
    tls = ServerTls(files)
    replace(files, authority.server("second"))
    tls.reload()
    nameless = authority.context()
    nameless.check_hostname = False
    assert name_in(shake_hands(tls.context, nameless, None)) == "second"
