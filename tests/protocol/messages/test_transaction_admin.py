"""DescribeTransactions and ListTransactions as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.transaction_admin import (
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    ListTransactionsRequest,
    TopicData,
)
from tests.protocol.messages.golden import assert_bytes


def test_a_transaction_comes_with_its_partitions() -> None:
    reply = DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsTransactionState(
                transactional_id="x",
                transaction_state="Ongoing",
                transaction_timeout_ms=60000,
                transaction_start_time_ms=1000,
                producer_id=5,
                producer_epoch=1,
                topics=[TopicData(topic="t", partitions=[0])],
            )
        ]
    )
    assert_bytes(
        reply,
        0,
        "00 00 00 00 02 00 00 02 78 08 4f 6e 67 6f 69 6e 67 00 00 ea 60 00 00 00 00 00 00 03 e8 00 00 00",
        "00 00 00 00 05 00 01 02 02 74 02 00 00 00 00 00 00 00",
    )


def test_transactions_are_filtered_by_duration_and_then_by_a_pattern() -> None:
    request = ListTransactionsRequest(
        state_filters=["Ongoing"], producer_id_filters=[5], duration_filter=1000, transactional_id_pattern="x.*"
    )
    assert_bytes(
        request, 2, "02 08 4f 6e 67 6f 69 6e 67 02 00 00 00 00 00 00 00 05 00 00 00 00 00 00 03 e8 04 78 2e 2a 00"
    )


def test_version_0_filters_by_state_and_producer_alone() -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[5])
    assert_bytes(request, 0, "02 08 4f 6e 67 6f 69 6e 67 02 00 00 00 00 00 00 00 05 00")
