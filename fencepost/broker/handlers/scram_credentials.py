"""DescribeUserScramCredentials and AlterUserScramCredentials: the credentials against which passwords are checked.

They are stored as in Kafka, and listeners with SASL use them for the next log-in.
Source: KIP-554; Kafka's ScramControlManager and ScramImage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final

from fencepost.broker.hosting.scram_credentials import (
    MAXIMUM_ITERATIONS,
    MINIMUM_ITERATIONS,
    Credential,
    Credentials,
    ScramMechanism,
    credential_of,
)
from fencepost.broker.kernel.sliced_work import SlicedWork, run_to_end
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes, succeeded
from fencepost.broker.requests.api import FEWEST_WRITTEN_IN_SLICES, RequestContext, SlicedResponse, api, build_in_slices
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.rights.needed_rights import ALTER, DESCRIBE, cluster
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode, ErrorWithMessage
from fencepost.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

Wanted = ScramCredentialDeletion | ScramCredentialUpsertion
Change = tuple[tuple[str, ScramMechanism], Credential | None]

# DescribeUserScramCredentials


def describe_user_scram_credentials_failed(
    request: DescribeUserScramCredentialsRequest, error: ErrorCode, version: int
) -> DescribeUserScramCredentialsResponse:
    # Kafka names no user in these results, of which there is one for each.
    nameless = [DescribeUserScramCredentialsResult(error_code=error, error_message=None) for _ in request.users or ()]
    return DescribeUserScramCredentialsResponse(error_code=error, error_message=None, results=nameless)


@api(
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    versions="0",
    rights=NeededRights(cluster(DESCRIBE)),
    needs_lease=False,
    errors=codes("CLUSTER_AUTHORIZATION_FAILED RESOURCE_NOT_FOUND DUPLICATE_RESOURCE"),
    failed=describe_user_scram_credentials_failed,
)
def handle_describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse | Coroutine[Any, Any, SlicedResponse]:
    """Describe the mechanisms and iterations of the given users; of all when none is named.

    Refuses, per user: RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE (named twice).
    """
    credentials = context.services.scram_credentials.all  # replaced as a whole, never changed in place
    counts = Counter(user.name for user in request.users or ()) or Counter(sorted(credentials))

    def steps() -> SlicedWork[DescribeUserScramCredentialsResponse]:
        results = []
        for user, count in counts.items():
            results.append(_describe(credentials, user, count))
            yield
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, error_message=None, results=results)

    return build_in_slices(steps()) if len(counts) >= FEWEST_WRITTEN_IN_SLICES else run_to_end(steps())


def _describe(credentials: Credentials, user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message
        )
    if user not in credentials:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.NONE,
        error_message=None,
        credential_infos=[
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism, credential in sorted(credentials[user].items())
        ],
    )


# AlterUserScramCredentials


def alter_user_scram_credentials_failed(
    request: AlterUserScramCredentialsRequest, error: ErrorCode, version: int, message: str | None = None
) -> AlterUserScramCredentialsResponse:
    """Every user of the request fails with the same error."""
    users = dict.fromkeys(wanted.name for wanted in _all_wanted(request))
    return AlterUserScramCredentialsResponse(results=[_result(user, (error, message)) for user in users])


def _result(user: str, outcome: ErrorWithMessage) -> AlterUserScramCredentialsResult:
    error, message = outcome
    return AlterUserScramCredentialsResult(user=user, error_code=error, error_message=message)


_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def _audit(context: RequestContext, request: Any, response: Any) -> Changes:
    for result in succeeded(response.results):
        details = {
            word: mechanisms
            for word, items in (("set", request.upsertions), ("removed", request.deletions))
            if (
                mechanisms := [_MECHANISMS.get(item.mechanism, "unknown") for item in items if item.name == result.user]
            )
        }
        yield AdministrativeChange("ALTER", "USER", result.user, details)


@api(
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    versions="0",
    rights=NeededRights(cluster(ALTER)),
    audit=_audit,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=codes(
        "CLUSTER_AUTHORIZATION_FAILED UNSUPPORTED_SASL_MECHANISM KAFKA_STORAGE_ERROR RESOURCE_NOT_FOUND "
        "DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL"
    ),
    failed=alter_user_scram_credentials_failed,
)
async def handle_alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set and remove credentials, one per user.

    Refuses, per user: DUPLICATE_RESOURCE (named twice), UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM,
    RESOURCE_NOT_FOUND (nothing to delete). If they cannot be stored, all others fail with KAFKA_STORAGE_ERROR.
    """
    credentials = context.services.scram_credentials
    outcomes: dict[str, ErrorWithMessage] = {}
    changes: dict[str, Change] = {}
    for wanted in _all_wanted(request):
        if outcomes.get(wanted.name, NO_PROBLEM) is not NO_PROBLEM:
            continue  # the first error of a user counts
        change = _check(credentials.all, wanted)
        if changes.pop(wanted.name, None) is not None:
            message = "A user credential cannot be altered twice in the same request"
            outcomes[wanted.name] = ErrorCode.DUPLICATE_RESOURCE, message
        elif isinstance(change[0], ErrorCode):
            outcomes[wanted.name] = change
        else:
            outcomes[wanted.name] = NO_PROBLEM
            changes[wanted.name] = change
    try:
        await credentials.change(dict(changes.values()))
    except StorageError as error:
        outcomes.update((user, (ErrorCode.KAFKA_STORAGE_ERROR, str(error))) for user in changes)
    return AlterUserScramCredentialsResponse(results=[_result(user, outcome) for user, outcome in outcomes.items()])


def _all_wanted(request: AlterUserScramCredentialsRequest) -> list[Wanted]:
    return [*request.deletions, *request.upsertions]


def _check(credentials: Credentials, wanted: Wanted) -> Change | tuple[ErrorCode, str]:
    """Return the requested change, or its refusal."""
    if not wanted.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if wanted.mechanism not in ScramMechanism.__members__.values():
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    mechanism = ScramMechanism(wanted.mechanism)
    if isinstance(wanted, ScramCredentialDeletion):
        if mechanism not in credentials.get(wanted.name, {}):
            return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        return (wanted.name, mechanism), None
    if wanted.iterations < MINIMUM_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if wanted.iterations > MAXIMUM_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    if not wanted.salted_password:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty"
    credential = credential_of(mechanism, wanted.iterations, wanted.salt, wanted.salted_password)
    return (wanted.name, mechanism), credential
