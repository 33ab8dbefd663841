"""SaslHandshake and SaslAuthenticate as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse
from tests.protocol.messages.golden import assert_bytes


def test_a_handshake_names_a_mechanism() -> None:
    request = SaslHandshakeRequest(mechanism="PLAIN")
    assert_bytes(request, 1, "00 05 50 4c 41 49 4e")


def test_a_refusal_names_the_mechanisms_that_there_are() -> None:
    reply = SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN", "SCRAM-SHA-256"])
    assert_bytes(reply, 1, "00 21 00 00 00 02 00 05 50 4c 41 49 4e 00 0d 53 43 52 41 4d 2d 53 48 41 2d 32 35 36")


def test_a_session_has_a_lifetime_from_version_1_on() -> None:
    reply = SaslAuthenticateResponse(error_message=None, auth_bytes=b"\x00", session_lifetime_ms=60000)
    assert_bytes(reply, 1, "00 00 ff ff 00 00 00 01 00 00 00 00 00 00 00 ea 60")
