"""PLAIN: what Kafka answers, and what the time must not tell."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.security.sasl.exchange import OTHER_AUTHORIZATION_ID, Found, Identified, Refused
from fencepost.broker.security.sasl.plain import ClearPasswords, PlainExchange

USERS = ClearPasswords({"alice": "alice-secret", "bob": "contraseña", "empty": ""}, b"a random key")


def found_for(token: bytes) -> Found:
    found = PlainExchange(USERS).evaluate(token)
    assert isinstance(found, Identified | Refused)
    return found


@pytest.mark.parametrize(
    "token", [b"\0alice\0alice-secret", b"alice\0alice\0alice-secret", "\0bob\0contraseña".encode()], ids=repr
)
def test_the_right_password_identifies_the_user(token: bytes) -> None:
    assert found_for(token) == Identified("bob" if b"bob" in token else "alice")


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0alice-secret", b"\0alice\0alice-secre"])
def test_a_wrong_password_and_an_unknown_user_have_one_text(token: bytes) -> None:
    found = found_for(token)
    assert isinstance(found, Refused)
    assert found.message == "Authentication failed: Invalid username or password"
    assert found.reason == "wrong user or password"
    assert found.user == ("alice" if token.startswith(b"\0alice") else None), (
        "only users that exist are named in the log"
    )


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"bob\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (bytes(100), "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"\0\xff\xfe\0x", "Authentication failed: Invalid username or password"),
        (b"\0alice\0" + b"x" * 70_000, "Authentication failed: Invalid username or password"),
    ],
)
def test_other_tokens_are_refused_with_kafkas_texts(token: bytes, message: str) -> None:
    found = found_for(token)
    assert isinstance(found, Refused)
    assert found.message == message
    assert found.user == ("alice" if token == b"bob\0alice\0wrong" else None)


def test_another_authorization_id_is_named_to_those_who_know_the_password() -> None:
    found = found_for(b"bob\0alice\0alice-secret")
    assert found == Refused(OTHER_AUTHORIZATION_ID, "another authorization id", "alice")


class SlowPasswords:
    def has(self, name: str) -> bool:
        return name == "alice"

    async def check(self, name: str, password: str, host: str) -> bool:
        await asyncio.sleep(0)
        return (name, password) == ("alice", "right")


@pytest.mark.parametrize("password", ["right", "wrong"])
async def test_passwords_may_be_checked_elsewhere(password: str) -> None:
    found = PlainExchange(SlowPasswords()).evaluate(b"\0alice\0" + password.encode())
    assert not isinstance(found, tuple)
    assert isinstance(await found, Identified if password == "right" else Refused)


@given(st.binary())
def test_no_bytes_raise(token: bytes) -> None:
    assert isinstance(found_for(token), Refused)


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(USERS) + repr(vars(PlainExchange) | {})
