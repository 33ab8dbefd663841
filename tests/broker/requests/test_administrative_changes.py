"""Which requests may have changed what all nodes share."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.requests.administrative_changes import is_refused
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from fencepost.protocol.messages.delegation_tokens import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from fencepost.protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse
from fencepost.protocol.messages.topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

DENIED, EXISTS = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_ALREADY_EXISTS


def created(*errors: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=error) for error in errors])


@pytest.mark.parametrize(
    ("request_", "response", "expected"),
    [
        (CreateTopicsRequest(), created(DENIED, DENIED), True),
        (CreateTopicsRequest(), created(), True),
        (CreateTopicsRequest(validate_only=True), created(ErrorCode.NONE), True),
        (CreateTopicsRequest(), created(DENIED, ErrorCode.NONE), False),
        (CreateTopicsRequest(), created(EXISTS), False),
        (DeleteAclsRequest(), DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error_code=31)]), True),
        # Nothing matches any more: the client repeats what it has no answer to.
        (DeleteAclsRequest(), DeleteAclsResponse(filter_results=[DeleteAclsFilterResult()]), False),
        (UpdateFeaturesRequest(), UpdateFeaturesResponse(error_code=31), True),
        (UpdateFeaturesRequest(), UpdateFeaturesResponse(), False),
        (RenewDelegationTokenRequest(), RenewDelegationTokenResponse(error_code=62), True),
        (RenewDelegationTokenRequest(), RenewDelegationTokenResponse(), False),
    ],
)
def test_only_what_was_refused_wholly_needs_no_confirmation(request_: Any, response: Any, expected: bool) -> None:
    assert is_refused(request_, response) is expected
