"""The APIs of delegation tokens, refused: no connection here is authenticated.

Source: KIP-48; Kafka's KafkaApis.allowTokenRequests, which refuses plain connections before anything else.
"""

from __future__ import annotations

from fencepost.broker.requests.api import RequestContext, api
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

ANONYMOUS_TYPE, ANONYMOUS = "User", "ANONYMOUS"
NO_TIMESTAMP_MS = -1


def create_delegation_token_failed(
    request: CreateDelegationTokenRequest, error: ErrorCode, version: int
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=ANONYMOUS_TYPE,
        principal_name=ANONYMOUS,
        token_requester_principal_type=ANONYMOUS_TYPE,
        token_requester_principal_name=ANONYMOUS,
        issue_timestamp_ms=NO_TIMESTAMP_MS,
        expiry_timestamp_ms=NO_TIMESTAMP_MS,
        max_timestamp_ms=NO_TIMESTAMP_MS,
    )


@api(CreateDelegationTokenRequest, CreateDelegationTokenResponse, failed=create_delegation_token_failed)
def handle_create_delegation_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the connection is not authenticated."""
    refused = create_delegation_token_failed(
        request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, context.api_version
    )
    if request.owner_principal_name and request.owner_principal_type is not None:
        # The owner of the token, if it is not the requester (KIP-373).
        refused.principal_type = request.owner_principal_type
        refused.principal_name = request.owner_principal_name
    return refused


def renew_delegation_token_failed(
    request: RenewDelegationTokenRequest, error: ErrorCode, version: int
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIMESTAMP_MS)


@api(RenewDelegationTokenRequest, RenewDelegationTokenResponse, failed=renew_delegation_token_failed)
def handle_renew_delegation_token(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the connection is not authenticated."""
    return renew_delegation_token_failed(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, context.api_version)


def expire_delegation_token_failed(
    request: ExpireDelegationTokenRequest, error: ErrorCode, version: int
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIMESTAMP_MS)


@api(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, failed=expire_delegation_token_failed)
def handle_expire_delegation_token(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the connection is not authenticated."""
    return expire_delegation_token_failed(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, context.api_version)


@api(
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
def handle_describe_delegation_token(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the connection is not authenticated."""
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
