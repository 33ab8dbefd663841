"""The APIs of delegation tokens: secrets of a limited life with which programs log in as a user.

Source: KIP-48, KIP-373; Kafka's KafkaApis (allowTokenRequests and the handlers after it) and
DelegationTokenControlManager.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from fencepost.broker.kernel.random_ids import base64_uuid
from fencepost.broker.requests.administrative_changes import audited_by_handler
from fencepost.broker.requests.api import RequestContext, api
from fencepost.broker.requests.declared_errors import DELEGATION_TOKENS, ONE_TOKEN, codes
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.broker.security.audit import note_change
from fencepost.broker.security.delegation_tokens import (
    USER_TYPE,
    Token,
    has_long_names,
    is_shown,
)
from fencepost.broker.security.principal import ANONYMOUS
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

NO_TIMESTAMP_MS: Final = -1
"""As many as in Kafka's, which are random UUIDs: nobody can guess an id."""


class Principal(NamedTuple):
    """A principal as these messages have it."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def _principal(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def _is_trusted(context: RequestContext) -> bool:
    """Whether the client may ask about tokens: it has authenticated, and not by a token, which would live on in new
    ones."""
    connection = context.connection
    authentication = connection.authentication
    return connection.principal != ANONYMOUS and not (authentication is not None and authentication.by_token)


def _may(context: RequestContext, api_name: str, operation: AclOperation, resource: AclResource, name: str) -> bool:
    gate = context.services.gate
    return gate is None or gate.may(context, api_name, operation, resource, name)


def _note(context: RequestContext, api_name: str, operation: str, token_id: str, **details: Any) -> None:
    note_change(
        context.connection.principal, context.client_host, api_name, operation, "DELEGATION_TOKEN", token_id, details
    )


def create_delegation_token_failed(
    request: CreateDelegationTokenRequest, error: ErrorCode, version: int
) -> CreateDelegationTokenResponse:
    anonymous = _principal(ANONYMOUS)
    return _creation_refused(error, anonymous, anonymous)


def _creation_refused(error: ErrorCode, owner: Principal, requester: Principal) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=NO_TIMESTAMP_MS,
        expiry_timestamp_ms=NO_TIMESTAMP_MS,
        max_timestamp_ms=NO_TIMESTAMP_MS,
    )


@api(
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    versions="1-3",
    rights=None,  # CREATE_TOKENS for another owner, which the handler asks
    audit=audited_by_handler,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=DELEGATION_TOKENS
    | codes(
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED INVALID_PRINCIPAL_TYPE INVALID_REQUEST POLICY_VIOLATION "
        "KAFKA_STORAGE_ERROR"
    ),
    failed=create_delegation_token_failed,
)
async def handle_create_delegation_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Create a token for the requester, or for another owner (KIP-373).

    Refuses: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without authentication, or with one by a token;
    DELEGATION_TOKEN_AUTHORIZATION_FAILED without CREATE_TOKENS on the other owner; DELEGATION_TOKEN_AUTH_DISABLED;
    INVALID_PRINCIPAL_TYPE (an owner or renewer that is no user); INVALID_REQUEST (names that are too long);
    POLICY_VIOLATION (too many tokens).
    """
    requester = owner = _principal(context.connection.principal)
    if request.owner_principal_name and request.owner_principal_type is not None:
        owner = Principal(request.owner_principal_type, request.owner_principal_name)
    api_name, tokens = "CreateDelegationToken", context.services.delegation_tokens
    if not _is_trusted(context):
        return _creation_refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, requester)
    if owner != requester and not _may(context, api_name, AclOperation.CREATE_TOKENS, AclResource.USER, str(owner)):
        return _creation_refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)
    response = CreateDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, *owner, *requester)
    if tokens is None:
        return response
    renewers = [str(Principal(renewer.principal_type, renewer.principal_name)) for renewer in request.renewers]
    if any(kind != USER_TYPE for kind in (owner.kind, *(renewer.principal_type for renewer in request.renewers))):
        response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
        return response
    if has_long_names(str(owner), str(requester), renewers):
        response.error_code = ErrorCode.INVALID_REQUEST
        return response
    token_id = base64_uuid()
    try:
        token = await tokens.create(token_id, str(owner), str(requester), renewers, request.max_lifetime_ms)
    except StorageError:
        token = ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(token, ErrorCode):
        response.error_code = token
        return response
    _note(context, api_name, "CREATE", token_id, owner=token.owner, renewers=token.renewers, max_ms=token.max_ms)
    response.error_code = ErrorCode.NONE
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token_id
    response.hmac = tokens.secret(token_id)
    return response


def renew_delegation_token_failed(
    request: RenewDelegationTokenRequest, error: ErrorCode, version: int
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error)


@api(
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    versions="1-2",
    rights=None,
    audit=audited_by_handler,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=ONE_TOKEN,
    failed=renew_delegation_token_failed,
)
async def handle_renew_delegation_token(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Renew a token, for its owner or a renewer.

    Refuses: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without authentication, or with one by a token;
    DELEGATION_TOKEN_AUTH_DISABLED; DELEGATION_TOKEN_NOT_FOUND; DELEGATION_TOKEN_EXPIRED;
    DELEGATION_TOKEN_OWNER_MISMATCH.
    """
    tokens = context.services.delegation_tokens
    if not _is_trusted(context):
        return RenewDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIMESTAMP_MS)
    if tokens is None:
        return RenewDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    try:
        token = await tokens.renew(bytes(request.hmac), context.connection.principal, request.renew_period_ms)
    except StorageError:
        token = ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(token, ErrorCode):
        return RenewDelegationTokenResponse(token)
    _note(context, "RenewDelegationToken", "ALTER", token.token_id, expires_ms=token.expires_ms)
    return RenewDelegationTokenResponse(ErrorCode.NONE, token.expires_ms)


def expire_delegation_token_failed(
    request: ExpireDelegationTokenRequest, error: ErrorCode, version: int
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error)


@api(
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    versions="1-2",
    rights=None,
    audit=audited_by_handler,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=ONE_TOKEN,
    failed=expire_delegation_token_failed,
)
async def handle_expire_delegation_token(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Set the end of a token, or remove it (a negative time), for its owner or a renewer.

    Refuses: as RenewDelegationToken.
    """
    tokens, period_ms = context.services.delegation_tokens, request.expiry_time_period_ms
    if not _is_trusted(context):
        return ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIMESTAMP_MS)
    if tokens is None:
        return ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    secret = bytes(request.hmac)
    token_id = tokens.id_of(secret) or "unknown"
    try:
        token = await tokens.expire(secret, context.connection.principal, period_ms)
    except StorageError:
        token = ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(token, ErrorCode):
        return ExpireDelegationTokenResponse(token)
    if token is None:
        _note(context, "ExpireDelegationToken", "DELETE", token_id)
        return ExpireDelegationTokenResponse(ErrorCode.NONE, context.services.clock.now_ms())
    _note(context, "ExpireDelegationToken", "ALTER", token_id, expires_ms=token.expires_ms)
    return ExpireDelegationTokenResponse(ErrorCode.NONE, token.expires_ms)


@api(
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    versions="1-3",
    rights=None,  # DESCRIBE and DESCRIBE_TOKENS, which the handler asks, for each token
    needs_lease=False,
    errors=DELEGATION_TOKENS,
)
def handle_describe_delegation_token(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """List the tokens, with their secrets, that the requester owns, renews or may describe.

    Refuses: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without authentication, or with one by a token;
    DELEGATION_TOKEN_AUTH_DISABLED.
    """
    services = context.services
    tokens = services.delegation_tokens
    if not _is_trusted(context):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if tokens is None:
        return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {str(Principal(owner.principal_type, owner.principal_name)) for owner in request.owners}
    rights = None if services.gate is None else services.gate.rights_of(context)

    def may_describe_token(token_id: str) -> bool:
        return rights is None or rights.may(AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, token_id)

    def may_describe_tokens_of(owner: str) -> bool:
        return rights is None or rights.may(AclOperation.DESCRIBE_TOKENS, AclResource.USER, owner)

    principal = context.connection.principal
    shown = [
        _described(token, tokens.secret(token.token_id))
        for token in tokens.all.values()
        if is_shown(token, principal, owners, may_describe_token, may_describe_tokens_of)
    ]
    return DescribeDelegationTokenResponse(ErrorCode.NONE, shown)


def _described(token: Token, secret: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        *_principal(token.owner),
        *_principal(token.requester),
        token.issued_ms,
        token.expires_ms,
        token.max_ms,
        token.token_id,
        secret,
        [DescribedDelegationTokenRenewer(*_principal(renewer)) for renewer in token.renewers],
    )
