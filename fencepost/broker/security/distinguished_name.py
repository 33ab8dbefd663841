"""Subject of an X.509 certificate as Kafka shows it, and the end of its validity, read from the DER. Pure.

The text is that of Java's `X500Principal.getName()` (RFC 2253), which ACLs of existing clusters name: attributes
without a short name there, such as e-mail addresses, are `OID=#hex`. OpenSSL has loaded or verified the certificate;
these few elements are walked here because a library for certificates takes a broker 10 MB.
Source: RFC 5280; OpenJDK 17's sun.security.x509.AVA, RDN and X500Name.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Final, NamedTuple

SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}

_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_EXPLICIT_VERSION = 0xA0
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString
_TEXT_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"


class CertificateFacts(NamedTuple):
    """The fields of a certificate that a broker needs.

    subject:     its distinguished name, as Java's `X500Principal.getName()`.
    not_after_s: the end of its validity, in seconds since 1970.
    """

    subject: str
    not_after_s: float


class _Element(NamedTuple):
    """A DER element: its tag, its content, and the whole of it."""

    tag: int
    content: bytes
    whole: bytes


def read_certificate(der: bytes) -> CertificateFacts:
    """Raises ValueError for anything but a certificate."""
    try:
        certificate = next(_elements(der))
        fields = list(_elements(next(_elements(certificate.content)).content))
        if fields[0].tag == _EXPLICIT_VERSION:
            del fields[0]
        _serial, _algorithm, _issuer, validity, subject, *_ = fields
        _not_before, not_after = _elements(validity.content)
        return CertificateFacts(name_text(subject.whole), _time_s(not_after))
    except (IndexError, StopIteration, ValueError) as error:
        raise ValueError(f"this is no X.509 certificate: {error}") from None


def name_text(der: bytes) -> str:
    """The text of a distinguished name, the last of its parts first. Raises ValueError for anything but one."""
    try:
        parts = [
            "+".join(_attribute_text(attribute) for attribute in _elements(part.content))
            for part in _elements(next(_elements(der)).content)
        ]
    except (IndexError, StopIteration) as error:
        raise ValueError(f"this is no distinguished name: {error}") from None
    return ",".join(reversed(parts))


def _attribute_text(attribute: _Element) -> str:
    kind, value = _elements(attribute.content)
    oid = _oid_text(kind.content)
    name = SHORT_NAMES.get(oid)
    if name is None or value.tag not in _TEXT_TAGS:
        return f"{name or oid}=#{value.whole.hex()}"
    return f"{name}={_escaped(value.content.decode(errors='replace'))}"


def _escaped(text: str) -> str:
    characters = "".join(
        f"\\{character}" if character in _ESCAPED else "\\00" if character == "\0" else character for character in text
    )
    lead_count = len(characters) - len(characters.lstrip(_BLANKS))
    trail_start = len(characters.rstrip(_BLANKS))
    return "".join(
        f"\\{character}" if position < lead_count or position >= trail_start else character
        for position, character in enumerate(characters)
    )


def _oid_text(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _time_s(element: _Element) -> float:
    text = element.content.decode("ascii")
    if element.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif element.tag != _GENERALIZED_TIME:
        raise ValueError("a time was expected")
    if len(text) != len("YYYYMMDDhhmmssZ") or text[-1] != "Z":
        raise ValueError("a time in UTC was expected")
    year, *others = int(text[:4]), *(int(text[position : position + 2]) for position in range(4, 14, 2))
    return dt.datetime(year, *others, tzinfo=dt.UTC).timestamp()  # type: ignore[misc,arg-type]  # five others


def _elements(content: bytes) -> Iterator[_Element]:
    """Yield the elements of a sequence. Raises IndexError and ValueError if they are cut."""
    position = 0
    while position < len(content):
        start = position
        tag, length = content[position], content[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise ValueError("a length of another form")
            length = int.from_bytes(content[position : position + count], "big")
            position += count
        if position + length > len(content):
            raise ValueError("it ends too early")
        yield _Element(tag, content[position : position + length], content[start : position + length])
        position += length
