"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken.

Source: KIP-48, KIP-373 (tokens for other users).
"""

from fencepost.protocol.schema import field, int16, int32, int64, message, struct


@struct
class CreatableRenewers:
    """A principal that may renew the token."""

    principal_type: str = ""
    principal_name: str = ""


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    """Ask for a token, for the requester unless an owner is named."""

    owner_principal_type: str | None = field(versions="3+", default="")
    owner_principal_name: str | None = field(versions="3+", default="")
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: int64 = 0


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    """A new token.

    Errors: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, INVALID_PRINCIPAL_TYPE.
    """

    error_code: int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = field(versions="3+", default="")
    token_requester_principal_name: str = field(versions="3+", default="")
    issue_timestamp_ms: int64 = 0
    expiry_timestamp_ms: int64 = 0
    max_timestamp_ms: int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int32 = 0


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    """Extend the life of a token; -1 for the broker's default."""

    hmac: bytes = b""
    renew_period_ms: int64 = 0


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    """Errors: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_NOT_FOUND."""

    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    """Set the expiry of a token; -1 for at once."""

    hmac: bytes = b""
    expiry_time_period_ms: int64 = 0


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """Errors: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_NOT_FOUND."""

    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0


@struct
class DescribeDelegationTokenOwner:
    """An owner of tokens."""

    principal_type: str = ""
    principal_name: str = ""


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """Ask for the tokens of owners; of all of them when `owners` is None."""

    owners: list[DescribeDelegationTokenOwner] | None = []


@struct
class DescribedDelegationTokenRenewer:
    """A principal that may renew the token."""

    principal_type: str = ""
    principal_name: str = ""


@struct
class DescribedDelegationToken:
    """One token."""

    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = field(versions="3+", default="")
    token_requester_principal_name: str = field(versions="3+", default="")
    issue_timestamp: int64 = 0
    expiry_timestamp: int64 = 0
    max_timestamp: int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """The tokens.

    Errors: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """

    error_code: int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: int32 = 0
