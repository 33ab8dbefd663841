"""The APIs of delegation tokens, refused: there are none here.

Source: KIP-48; Kafka's KafkaApis.allowTokenRequests, which refuses connections without authentication before anything
else, and its answers if tokens are not configured.
"""

from __future__ import annotations

from fencepost.broker.requests.api import RequestContext, api
from fencepost.broker.requests.declared_errors import WITHOUT_TOKENS
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.broker.security.principal import ANONYMOUS
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

NO_TIMESTAMP_MS = -1


def _is_anonymous(context: RequestContext) -> bool:
    return context.connection.principal == ANONYMOUS


def create_delegation_token_failed(
    request: CreateDelegationTokenRequest, error: ErrorCode, version: int
) -> CreateDelegationTokenResponse:
    kind, name = ANONYMOUS.split(":")
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=NO_TIMESTAMP_MS,
        expiry_timestamp_ms=NO_TIMESTAMP_MS,
        max_timestamp_ms=NO_TIMESTAMP_MS,
    )


@api(
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    versions="1-3",
    rights=None,  # CREATE_TOKENS for another owner, which the handler asks
    needs_lease=False,
    errors=WITHOUT_TOKENS,
    failed=create_delegation_token_failed,
)
def handle_create_delegation_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without authentication; DELEGATION_TOKEN_AUTHORIZATION_FAILED for another
    owner, without the right to make tokens for that one; else DELEGATION_TOKEN_AUTH_DISABLED."""
    requester = owner = context.connection.principal.split(":", 1)
    if request.owner_principal_name and request.owner_principal_type is not None:
        owner = [request.owner_principal_type, request.owner_principal_name]  # KIP-373
    if _is_anonymous(context):
        error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif owner != requester and not _may_make_tokens_for(context, ":".join(owner)):
        error = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    else:
        error = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    refused = CreateDelegationTokenResponse(error)
    if error is not ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
        refused = create_delegation_token_failed(request, error, context.api_version)
    refused.principal_type, refused.principal_name = owner
    refused.token_requester_principal_type, refused.token_requester_principal_name = requester
    return refused


def _may_make_tokens_for(context: RequestContext, owner: str) -> bool:
    gate = context.services.gate
    if gate is None:
        return True
    return gate.may(context, "CreateDelegationToken", AclOperation.CREATE_TOKENS, AclResource.USER, owner)


def renew_delegation_token_failed(
    request: RenewDelegationTokenRequest, error: ErrorCode, version: int
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error)


@api(
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    versions="1-2",
    rights=None,
    needs_lease=False,
    errors=WITHOUT_TOKENS,
    failed=renew_delegation_token_failed,
)
def handle_renew_delegation_token(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without authentication, else DELEGATION_TOKEN_AUTH_DISABLED."""
    if not _is_anonymous(context):
        return RenewDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return RenewDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIMESTAMP_MS)


def expire_delegation_token_failed(
    request: ExpireDelegationTokenRequest, error: ErrorCode, version: int
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error)


@api(
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    versions="1-2",
    rights=None,
    needs_lease=False,
    errors=WITHOUT_TOKENS,
    failed=expire_delegation_token_failed,
)
def handle_expire_delegation_token(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without authentication, else DELEGATION_TOKEN_AUTH_DISABLED."""
    if not _is_anonymous(context):
        return ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIMESTAMP_MS)


@api(
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    versions="1-3",
    rights=None,
    needs_lease=False,
    errors=WITHOUT_TOKENS,
)
def handle_describe_delegation_token(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without authentication, else DELEGATION_TOKEN_AUTH_DISABLED."""
    if not _is_anonymous(context):
        return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
