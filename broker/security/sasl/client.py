"""A log-in by SASL, from the side of the client: what to send, given what the broker answered. Pure.

Source: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), RFC 7628 (OAUTHBEARER).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Generator
from typing import Final

_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MAXIMUM_ITERATIONS: Final = 1_000_000
"""More would keep this machine busy for seconds: a broker that asks for them is none to log in to."""

Login = Generator[bytes, bytes, None]
"""Yields what to send, and gets each answer."""


class LoginError(Exception):
    """The broker's answers are not those of the mechanism."""


def login(mechanism: str, username: str, password: str, token: Callable[[], str] | None, nonce: str) -> Login:
    """The messages of a log-in. nonce: random, of printable characters without commas. Raises LoginError."""
    if token is not None:
        return _oauthbearer(token())
    if mechanism in _DIGESTS:
        return _scram(_DIGESTS[mechanism], username, password, nonce)
    return _plain(username, password)


def escaped_name(username: str) -> str:
    """A user's name as messages of SCRAM have it."""
    return username.replace("=", "=3D").replace(",", "=2C")


def _plain(username: str, password: str) -> Login:
    yield f"\0{username}\0{password}".encode()


def _oauthbearer(token: str) -> Login:
    answer = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if answer:
        yield b"\x01"  # the broker has refused the token, and says so after this


def _scram(digest: str, username: str, password: str, nonce: str) -> Login:
    first = f"n={escaped_name(username)},r={nonce}"
    challenge = (yield f"n,,{first}".encode()).decode("utf-8", "replace")
    fields = _fields(challenge)
    try:
        whole_nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
    except (KeyError, ValueError):
        raise LoginError("its challenge cannot be read") from None
    if not whole_nonce.startswith(nonce) or not 0 < iterations <= MAXIMUM_ITERATIONS:
        raise LoginError("its challenge is not an answer to this client")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    without_proof = f"c=biws,r={whole_nonce}"
    message = f"{first},{challenge},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = (yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()).decode("utf-8", "replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), message, digest)
    if _fields(final).get("v") != base64.b64encode(expected).decode():
        raise LoginError("it does not prove that it knows the password")


def _fields(text: str) -> dict[str, str]:
    return {key: value for key, equals, value in (part.partition("=") for part in text.split(",")) if equals}
