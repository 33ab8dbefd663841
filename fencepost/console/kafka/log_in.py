"""The client's side of SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. Pure.

An exchange is a generator: it yields what to send and is sent what the broker answered; it returns at the end.
Source: RFC 4616, 5802, 7677, 7628; Kafka's ScramSaslClient and OAuthBearerSaslClient.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

from fencepost.console.kafka.errors import LogInRefusedError

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
"""Those that the console has, in the order in which it prefers them."""
MOST_ITERATIONS: Final = 1_000_000
"""A broker that asks for more would only keep the console busy. Kafka's own default is 4,096."""

Exchange = Generator[bytes, bytes, None]


@dataclass(frozen=True)
class Credentials:
    """Who logs in, and by which mechanism. `secret`: the password, or the token of OAUTHBEARER."""

    mechanism: str
    user: str
    secret: str = field(repr=False)


def exchange(credentials: Credentials, nonce: str) -> Exchange:
    """Begin the exchange of the mechanism. nonce: random printable text without commas. Raises LogInRefusedError."""
    match credentials.mechanism:
        case "PLAIN":
            return _plain(credentials)
        case "SCRAM-SHA-256":
            return _scram(credentials, "sha256", nonce)
        case "SCRAM-SHA-512":
            return _scram(credentials, "sha512", nonce)
        case "OAUTHBEARER":
            return _bearer(credentials)
    raise LogInRefusedError(f"the console has no mechanism {credentials.mechanism}; it has {', '.join(MECHANISMS)}")


def _plain(credentials: Credentials) -> Exchange:
    yield b"\0" + credentials.user.encode() + b"\0" + credentials.secret.encode()


def _bearer(credentials: Credentials) -> Exchange:
    answer = yield b"n,,\x01auth=Bearer " + credentials.secret.strip().encode() + b"\x01\x01"
    if answer:  # why the token was refused; the broker ends the exchange after this byte
        yield b"\x01"


def _scram(credentials: Credentials, algorithm: str, nonce: str) -> Exchange:
    name = credentials.user.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = (yield f"n,,{client_first}".encode()).decode(errors="replace")
    attributes = _attributes(server_first)
    try:
        salt = base64.b64decode(attributes["s"], validate=True)
        both_nonces, iterations = attributes["r"], int(attributes["i"])
    except (KeyError, ValueError):
        raise LogInRefusedError("the broker's answer is not that of SCRAM") from None
    if not both_nonces.startswith(nonce) or not 0 < iterations <= MOST_ITERATIONS:
        raise LogInRefusedError("the broker's answer does not belong to this log-in")
    salted = hashlib.pbkdf2_hmac(algorithm, credentials.secret.encode(), salt, iterations)
    client_key = _hmac(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    without_proof = f"c=biws,r={both_nonces}"
    signed = f"{client_first},{server_first},{without_proof}".encode()
    signature = _hmac(stored_key, signed, algorithm)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    server_final = (yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    expected = _hmac(_hmac(salted, b"Server Key", algorithm), signed, algorithm)
    answered = _attributes(server_final)
    try:
        verifier = base64.b64decode(answered.get("v", ""))
    except ValueError:
        verifier = b""
    if not hmac.compare_digest(verifier, expected):
        raise LogInRefusedError(answered.get("e") or "the broker could not prove that it knows the user")


def _attributes(message: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in message.split(","))}


def _hmac(key: bytes, content: bytes, algorithm: str) -> bytes:
    return hmac.new(key, content, algorithm).digest()


def salted_password(password: str, salt: bytes, iterations: int, mechanism: str) -> bytes:
    """The salted password of a SCRAM credential, as AlterUserScramCredentials takes it."""
    return hashlib.pbkdf2_hmac("sha512" if mechanism.endswith("512") else "sha256", password.encode(), salt, iterations)
