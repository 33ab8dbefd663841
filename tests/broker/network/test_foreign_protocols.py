"""Protocols that are not this listener's, by their first bytes."""

from __future__ import annotations

import pytest

from fencepost.broker.network.foreign_protocols import foreign_protocol, why_no_tls


@pytest.mark.parametrize(
    ("start", "protocol"),
    [
        (b"GET /", "HTTP"),
        (b"PRI * ", "HTTP/2"),
        (b"SSH-2", "SSH"),
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"\x00\x00\x00\x14\x00", None),
        (b"", None),
    ],
)
def test_a_protocol_is_known_by_its_first_bytes(start: bytes, protocol: str | None) -> None:
    assert foreign_protocol(start) == protocol


def test_a_client_without_tls_is_described_for_the_log() -> None:
    assert "speaks HTTP without TLS" in why_no_tls(b"POST ")
    assert "speaks Kafka without TLS" in why_no_tls(b"\x00\x00\x00\x14\x00")
    assert why_no_tls(b"\xff\x01") == "what the client sends is no TLS (it begins with ff 01)"
