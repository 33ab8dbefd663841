"""SaslHandshake and SaslAuthenticate, refused: all listeners are PLAINTEXT, without authentication.

Source: KIP-152; Kafka's KafkaApis.handleSaslHandshakeRequest and handleSaslAuthenticateRequest.
"""

from __future__ import annotations

from fencepost.broker.requests.api import RequestContext, api
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

TOO_LATE = "SaslAuthenticate request received after successful authentication"


@api(SaslHandshakeRequest, SaslHandshakeResponse)
def handle_sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """ILLEGAL_SASL_STATE: this connection needs no authentication."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate_failed(
    request: SaslAuthenticateRequest, error: ErrorCode, version: int, message: str | None = None
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error, error_message=message)


@api(SaslAuthenticateRequest, SaslAuthenticateResponse, failed=sasl_authenticate_failed)
def handle_sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """ILLEGAL_SASL_STATE: this connection needs no authentication."""
    return sasl_authenticate_failed(request, ErrorCode.ILLEGAL_SASL_STATE, context.api_version, message=TOO_LATE)
