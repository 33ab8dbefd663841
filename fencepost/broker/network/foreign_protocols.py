"""Names of protocols that are not this listener's, by the first bytes that a client sends."""

from __future__ import annotations

from typing import Final

LONGEST_START_BYTES: Final = 5
TLS_HANDSHAKE: Final = 0x16
_TLS_MAJOR_VERSION: Final = 3
_OTHERS: Final = {
    b"GET ": "HTTP",
    b"POST": "HTTP",
    b"HEAD": "HTTP",
    b"PUT ": "HTTP",
    b"DELE": "HTTP",
    b"OPTI": "HTTP",
    b"PATC": "HTTP",
    b"CONN": "HTTP",
    b"PRI ": "HTTP/2",
    b"SSH-": "SSH",
    b"PROX": "the PROXY protocol",
    b"\r\n\r\n": "the PROXY protocol",
}


def foreign_protocol(start: bytes) -> str | None:
    """The protocol that a client speaks whose first bytes these are; None if they may be Kafka's without TLS."""
    if start[:2] == bytes((TLS_HANDSHAKE, _TLS_MAJOR_VERSION)):
        return "TLS"
    return _OTHERS.get(start[:4])


def why_no_tls(start: bytes) -> str:
    """The protocol of a client that does not begin a TLS handshake, in words."""
    other = foreign_protocol(start)
    if other is not None:
        return f"the client speaks {other} without TLS, and this listener speaks TLS only"
    if start[:1] == b"\0":  # a frame shorter than 16 MiB
        return "the client speaks Kafka without TLS, and this listener speaks TLS only; see its security.protocol"
    return f"what the client sends is no TLS (it begins with {start.hex(' ')})"
