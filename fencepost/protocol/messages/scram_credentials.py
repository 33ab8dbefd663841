"""DescribeUserScramCredentials and AlterUserScramCredentials: credentials against which passwords are checked.

Mechanisms: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512. Source: KIP-554.
"""

from fencepost.protocol.schema import int8, int16, int32, message, struct


@struct
class UserName:
    """A user."""

    name: str = ""


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """Ask for the credentials of users; of all of them when `users` is None or empty."""

    users: list[UserName] | None = []


@struct
class CredentialInfo:
    """A credential without its secret parts."""

    mechanism: int8 = 0
    iterations: int32 = 0


@struct
class DescribeUserScramCredentialsResult:
    """The credentials of a user.

    Errors: RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE.
    """

    user: str = ""
    error_code: int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = []


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """One result per user.

    Errors: CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


@struct
class ScramCredentialDeletion:
    """A credential to remove."""

    name: str = ""
    mechanism: int8 = 0


@struct
class ScramCredentialUpsertion:
    """A credential that is set; its password was salted and hashed by the client."""

    name: str = ""
    mechanism: int8 = 0
    iterations: int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """Set and remove credentials."""

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


@struct
class AlterUserScramCredentialsResult:
    """Result of one user.

    Errors: RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE, UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM,
    CLUSTER_AUTHORIZATION_FAILED.
    """

    user: str = ""
    error_code: int16 = 0
    error_message: str | None = ""


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """One result per user."""

    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
