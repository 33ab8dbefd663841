"""Names of certificates: their text, as Java 17 answered."""

from __future__ import annotations

import datetime as dt

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from fencepost.broker.security.distinguished_name import name_text, read_certificate


def name(*parts: tuple[x509.ObjectIdentifier, str]) -> bytes:
    return x509.Name([x509.NameAttribute(oid, value, _validate=False) for oid, value in parts]).public_bytes()


@pytest.mark.parametrize(
    ("der", "text"),
    [
        (name((NameOID.COUNTRY_NAME, "DE"), (NameOID.COMMON_NAME, "alice")), "CN=alice,C=DE"),
        (name((NameOID.EMAIL_ADDRESS, "a@b.c")), "1.2.840.113549.1.9.1=#16056140622e63"),
        (name((NameOID.SERIAL_NUMBER, "1"), (NameOID.USER_ID, "u")), "UID=u,2.5.4.5=#130131"),
        (name((NameOID.COMMON_NAME, 'a,b+c="d"<e>;#\\')), 'CN=a\\,b\\+c\\=\\"d\\"\\<e\\>\\;\\#\\\\'),
        (name((NameOID.COMMON_NAME, " a ")), "CN=\\ a\\ "),
        (name((NameOID.COMMON_NAME, "admin\0.evil")), "CN=admin\\00.evil"),
        (name((NameOID.COMMON_NAME, "Jürgen 日本")), "CN=Jürgen 日本"),
    ],
)
def test_the_text_of_a_name_is_that_of_java(der: bytes, text: str) -> None:
    assert name_text(der) == text


def test_of_a_certificate_its_subject_and_its_end_are_read() -> None:
    end = dt.datetime(2049, 12, 31, 23, 59, 58, tzinfo=dt.UTC)
    for not_after in (end, end + dt.timedelta(days=400)):  # written in two ways, before 2050 and after
        issued = trustme.CA().issue_cert(common_name="alice", organization_name="Example", not_after=not_after)
        certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
        facts = read_certificate(certificate.public_bytes(Encoding.DER))
        assert facts.subject.startswith("CN=alice,")
        assert facts.not_after_s == not_after.timestamp()


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x82", b"\x30\x03\x02\x01\x05", b"\x30\x80\0\0", b"cut off"])
def test_what_is_no_certificate_is_refused(der: bytes) -> None:
    with pytest.raises(ValueError, match=r"no X\.509 certificate"):
        read_certificate(der)
