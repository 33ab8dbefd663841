"""A log-in by SASL, from the side of the client: the next message, given the broker's answer. Pure.

Source: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), RFC 7628 (OAUTHBEARER); KIP-48.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Generator
from typing import Final

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
"""Those that `login` has, in the order in which a client prefers them."""
_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
DELEGATED: Final = ",tokenauth=true"
"""The extension of Kafka's SCRAM for delegation tokens (KIP-48; Kafka's ScramExtensions)."""
MAXIMUM_ITERATIONS: Final = 1_000_000
"""More would keep this machine busy for seconds: the log-in at a broker that demands them fails."""

Login = Generator[bytes, bytes, None]
"""Yields each message to the broker, and gets its answer."""


class LoginError(Exception):
    """The broker's answers are not those of the mechanism; the message ends a sentence about the broker."""


def login(
    mechanism: str,
    username: str,
    password: str,
    token: Callable[[], str] | None,
    nonce: str,
    *,
    is_delegated: bool = False,
) -> Login:
    """The messages of a log-in. nonce: random, of printable characters without commas. Raises LoginError.

    is_delegated: the name is the id of a delegation token, the password its HMAC in Base64; SCRAM alone knows it.
    """
    if token is not None:
        return _oauthbearer(token())
    if mechanism in _DIGESTS:
        return _scram(mechanism, username, password, nonce, DELEGATED if is_delegated else "")
    return _plain(username, password)


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password of SCRAM, which AlterUserScramCredentials takes, too. Takes milliseconds."""
    return hashlib.pbkdf2_hmac(_DIGESTS[mechanism], password.encode(), salt, iterations)


def escaped_name(username: str) -> str:
    """A user's name as messages of SCRAM have it."""
    return username.replace("=", "=3D").replace(",", "=2C")


def _plain(username: str, password: str) -> Login:
    yield f"\0{username}\0{password}".encode()


def _oauthbearer(token: str) -> Login:
    answer = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if answer:
        yield b"\x01"  # the broker has refused the token, and says so after this


def _scram(mechanism: str, username: str, password: str, nonce: str, extensions: str) -> Login:
    digest = _DIGESTS[mechanism]
    first = f"n={escaped_name(username)},r={nonce}{extensions}"
    challenge = (yield f"n,,{first}".encode()).decode("utf-8", "replace")
    fields = _fields(challenge)
    try:
        whole_nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"], validate=True), int(fields["i"])
    except (KeyError, ValueError):
        raise LoginError("its challenge cannot be read") from None
    if not whole_nonce.startswith(nonce) or not 0 < iterations <= MAXIMUM_ITERATIONS:
        raise LoginError("its challenge is not an answer to this client")
    salted = salted_password(mechanism, password, salt, iterations)
    without_proof = f"c=biws,r={whole_nonce}"
    message = f"{first},{challenge},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = (yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()).decode("utf-8", "replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), message, digest)
    fields = _fields(final)
    if not hmac.compare_digest(fields.get("v", "").encode(), base64.b64encode(expected)):
        raise LoginError(f"it says {fields['e']}" if "e" in fields else "it does not prove that it knows the password")


def _fields(text: str) -> dict[str, str]:
    return {key: value for key, equals, value in (part.partition("=") for part in text.split(",")) if equals}
