"""The data about allowed replies covers all that is served, and says for old versions what those versions know."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import fencepost.broker.handlers
from fencepost.broker.requests.api import APIS
from fencepost.broker.transaction.state_machine import TransactionState
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
)
from tests.support.allowed_replies import ABSENT, SINCE_VERSION, allowed_errors, error_codes

for module in pkgutil.iter_modules(fencepost.broker.handlers.__path__):
    importlib.import_module(f"fencepost.broker.handlers.{module.name}")


def test_every_served_api_and_version_has_its_codes() -> None:
    for api in APIS.values():
        for version in range(api.minimum_version, api.maximum_version + 1):
            for state in (None, ABSENT, *TransactionState):
                allowed = allowed_errors(ApiKey(api.key), version, state)
                assert ErrorCode.UNKNOWN_SERVER_ERROR not in allowed
                assert ErrorCode.NONE in allowed or state is not None


@pytest.mark.parametrize(("api", "since"), [(api, codes) for api, codes in SINCE_VERSION.items()])
def test_a_code_is_allowed_from_the_version_on_that_brought_it(api: ApiKey, since: dict[ErrorCode, int]) -> None:
    for error, version in since.items():
        assert error in allowed_errors(api, version)
        assert error not in allowed_errors(api, version - 1)


def test_versions_that_do_not_know_producer_fenced_say_invalid_producer_epoch() -> None:
    for version, error in ((3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)):
        both = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
        assert both & allowed_errors(ApiKey.INIT_PRODUCER_ID, version) == {error}


def test_what_only_waits_for_completion_may_find_any_state_afterwards() -> None:
    in_ongoing = allowed_errors(ApiKey.END_TXN, 5, TransactionState.ONGOING)
    in_prepared = allowed_errors(ApiKey.END_TXN, 5, TransactionState.PREPARE_COMMIT)
    assert ErrorCode.CONCURRENT_TRANSACTIONS not in in_ongoing
    assert {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE} <= in_prepared


def test_an_api_that_is_not_listed_is_reported() -> None:
    with pytest.raises(KeyError):
        allowed_errors(ApiKey.VOTE, 0)


def test_all_error_codes_of_a_response_are_found() -> None:
    response = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name="out",
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=ErrorCode.PRODUCER_FENCED)
                ],
            )
        ]
    )
    assert set(error_codes(response)) == {ErrorCode.NONE, ErrorCode.PRODUCER_FENCED}
    assert list(error_codes(EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))) == [ErrorCode.INVALID_TXN_STATE]
