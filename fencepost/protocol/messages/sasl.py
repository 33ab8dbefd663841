"""SaslHandshake and SaslAuthenticate: authentication of a connection.

Source: KIP-43, KIP-152, KIP-368 (lifetimes of sessions).
"""

from fencepost.protocol.schema import field, int16, int64, message


@message(key=17, versions="0-1")
class SaslHandshakeRequest:
    """Choose a mechanism."""

    mechanism: str = ""


@message(key=17, versions="0-1")
class SaslHandshakeResponse:
    """The mechanisms that there are.

    Errors: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE.
    """

    error_code: int16 = 0
    mechanisms: list[str] = []


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """Bytes of the client, as its mechanism defines them."""

    auth_bytes: bytes = b""


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """Bytes of the broker.

    Errors: SASL_AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE, UNSUPPORTED_SASL_MECHANISM.
    """

    error_code: int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int64 = field(versions="1+", default=0)
