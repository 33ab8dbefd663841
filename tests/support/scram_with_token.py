"""A client of SCRAM that says that its name is the id of a delegation token: libraries other than Java's have none."""

from __future__ import annotations

import base64
import hashlib
import hmac


class TokenClient:
    """One log-in. header: of the first message; extensions: at its end."""

    def __init__(
        self,
        token_id: str,
        password: str,
        mechanism: str = "SCRAM-SHA-256",
        *,
        header: str = "n,,",
        extensions: str = ",tokenauth=true",
    ) -> None:
        self._digest = "sha" + mechanism.rpartition("-")[2]
        self._password = password
        self._header = header
        self._bare = f"n={token_id},r=client{extensions}"

    def first(self) -> bytes:
        return (self._header + self._bare).encode()

    def final(self, challenge: bytes) -> bytes:
        """The proof for the broker's challenge."""
        nonce, salt, iterations = (part.partition("=")[2] for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self._digest, self._password.encode(), base64.b64decode(salt), int(iterations))
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        final = f"c={base64.b64encode(self._header.encode()).decode()},r={nonce}"
        signed = f"{self._bare},{challenge.decode()},{final}".encode()
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), signed, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{final},p={base64.b64encode(proof).decode()}".encode()
