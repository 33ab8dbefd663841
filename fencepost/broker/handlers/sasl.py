"""SaslHandshake and SaslAuthenticate of clients that are served: the listener is without SASL, or they have
authenticated. Those of other clients do not get here: see `fencepost/broker/network/authentication.py`.

Source: KIP-152, KIP-368; Kafka's KafkaApis.handleSaslHandshakeRequest and handleSaslAuthenticateRequest.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from fencepost.broker.requests.api import RequestContext, api
from fencepost.broker.requests.declared_errors import codes
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

TOO_LATE = "SaslAuthenticate request received after successful authentication"


@api(
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    versions="0-1",
    rights=None,
    needs_lease=False,
    errors=codes("UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE"),
)
def handle_sasl_handshake(
    context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse | Coroutine[Any, Any, SaslHandshakeResponse | None]:
    """Choose a mechanism and, once the client is known, authenticate again.

    ILLEGAL_SASL_STATE: the listener is without SASL, the session of the client has no end, or it authenticated again
    less than a second before. UNSUPPORTED_SASL_MECHANISM: with the mechanisms that are enabled; only at the first time.
    """
    authentication = context.connection.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return authentication.handshake_again(request, context.api_version)


def sasl_authenticate_failed(
    request: SaslAuthenticateRequest, error: ErrorCode, version: int, message: str | None = None
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error, error_message=message)


@api(
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    versions="0-2",
    rights=None,
    needs_lease=False,
    errors=codes("ILLEGAL_SASL_STATE SASL_AUTHENTICATION_FAILED"),
    failed=sasl_authenticate_failed,
)
def handle_sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Send a token of the mechanism that was chosen.

    SASL_AUTHENTICATION_FAILED: the user, the password or the token is wrong.
    ILLEGAL_SASL_STATE: no mechanism was chosen since the client authenticated, or the listener is without SASL.
    """
    return sasl_authenticate_failed(request, ErrorCode.ILLEGAL_SASL_STATE, context.api_version, message=TOO_LATE)
