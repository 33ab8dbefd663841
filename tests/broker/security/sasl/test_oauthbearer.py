"""OAUTHBEARER: the messages of RFC 7628, and Kafka's answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.security.sasl.exchange import Challenge, Found, Identified, Refused
from fencepost.broker.security.sasl.oauthbearer import Bearer, InvalidToken, OAuthBearerExchange

GOOD = "eyJh.eyJz.c2ln"


def validate(token: str) -> Bearer | InvalidToken:
    return Bearer("alice", 5_000) if token == GOOD else InvalidToken("a bad token")


def found_for(*messages: bytes) -> Found:
    exchange = OAuthBearerExchange(validate)
    found: object = None
    for message in messages:
        found = exchange.evaluate(message)
    assert isinstance(found, Challenge | Identified | Refused)
    return found


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer eyJh.eyJz.c2ln\x01\x01",
        b"n,a=alice,\x01auth=bearer  eyJh.eyJz.c2ln\x01\x01",
        b"n,,\x01host=h\x01port=9092\x01auth=Bearer eyJh.eyJz.c2ln\x01\x01",
        b"n,,\x01auth=Bearer eyJh.eyJz.c2ln\x01traceId=123\x01\x01",
    ],
)
def test_a_valid_token_identifies_its_user_until_it_expires(message: bytes) -> None:
    assert found_for(message) == Identified("alice", b"", 5_000)


def test_an_invalid_token_is_refused_in_two_steps() -> None:
    message = b"n,,\x01auth=Bearer abc\x01\x01"
    assert found_for(message) == Challenge(b'{"status":"invalid_token"}')
    assert found_for(message, b"\x01") == Refused('{"status":"invalid_token"}', "a bad token")


def test_a_valid_token_after_an_invalid_one_is_too_late() -> None:
    good = f"n,,\x01auth=Bearer {GOOD}\x01\x01".encode()
    assert isinstance(found_for(b"n,,\x01auth=Bearer abc\x01\x01", good), Refused)


def test_another_authorization_id_is_named() -> None:
    found = found_for(b"n,a=b=2Cob,\x01auth=Bearer eyJh.eyJz.c2ln\x01\x01")
    assert isinstance(found, Refused)
    assert found.message is not None
    assert "authorization id (b,ob) that is different from the token's principal name (alice)" in found.message


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic eyJh.eyJz.c2ln\x01\x01",
        b"n,,\x01auth=Bearer eyJh.eyJz.c2ln\x01",
        b"n,,\x01auth=Bearer eyJh.eyJz.c2ln\x01auth=Bearer other\x01\x01",
        b"y,,\x01auth=Bearer eyJh.eyJz.c2ln\x01\x01",
        b"n,,\x01auth=Bearer ey\xffh\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 70_000 + b"\x01\x01",
        b"n,,\x01" + b"a=b\x01" * 100_000,
        b"n,,\x01auth=Bearer eyJh.eyJz.c2ln\x01\x01more",
    ],
)
def test_other_messages_are_refused(message: bytes) -> None:
    found = found_for(message)
    assert isinstance(found, Refused)
    assert found.message is None, "the text that all mechanisms have"


@given(st.binary())
def test_no_bytes_raise(message: bytes) -> None:
    assert isinstance(found_for(b"n,,\x01auth=" + message), Refused | Challenge)
