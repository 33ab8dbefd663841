"""Every API declares the error codes of its answers, by names that exist."""

from __future__ import annotations

import pytest

from fencepost.broker.requests.api import APIS
from fencepost.broker.requests.declared_errors import codes
from fencepost.protocol.errors import ErrorCode


def test_codes_are_given_by_name() -> None:
    assert codes("INVALID_REQUEST UNKNOWN_TOPIC_ID") == {ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_ID}


def test_a_name_that_is_no_error_code_is_refused() -> None:
    with pytest.raises(KeyError, match="INVALID_REQUESTS"):
        codes("INVALID_REQUESTS")


def test_every_api_may_succeed_and_none_may_fail_without_a_name() -> None:
    for api in APIS.values():
        assert ErrorCode.NONE in api.errors, api.name
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in api.errors, api.name


def test_an_api_that_may_be_refused_for_want_of_a_right_declares_an_error_for_it() -> None:
    for api in APIS.values():
        rights = api.rights
        if rights is not None and (rights.whole or rights.items or rights.split):
            assert any(error.name.endswith("_AUTHORIZATION_FAILED") for error in api.errors), api.name
