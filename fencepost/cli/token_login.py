"""A log-in of kafka-python's clients by a delegation token (KIP-48): its own SCRAM lacks the extension that says so."""

from __future__ import annotations

import secrets
from typing import Any

from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.abc import SaslMechanism

from fencepost.protocol.sasl_login import LoginError, login


class _TokenScram(SaslMechanism):  # type: ignore[misc]  # kafka-python has no types
    """SCRAM as the protocol package has it, for the name and password of the client's options."""

    def __init__(self, **config: Any) -> None:
        self._steps = login(
            config["sasl_mechanism"],
            config["sasl_plain_username"],
            config["sasl_plain_password"],
            None,
            secrets.token_hex(16),
            is_delegated=True,
        )
        self._message = next(self._steps)
        self._is_done = False

    def auth_bytes(self) -> bytes:
        return self._message

    def receive(self, answer: bytes) -> bool:
        try:
            self._message = self._steps.send(bytes(answer))
        except StopIteration:
            self._is_done = True
        except LoginError as error:
            raise SaslAuthenticationFailedError(str(error)) from None
        return self._is_done

    def is_done(self) -> bool:
        return self._is_done

    def is_authenticated(self) -> bool:
        return self._is_done


def log_in_by_tokens(mechanism: str) -> None:
    """Let all clients of kafka-python in this process that use a mechanism of SCRAM log in by delegation tokens."""
    register_sasl_mechanism(mechanism, _TokenScram, overwrite=True)
