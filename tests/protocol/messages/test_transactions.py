"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnResponse,
    InitProducerIdRequest,
)
from tests.protocol.messages.golden import assert_bytes


def test_a_producer_goes_on_with_its_pair_from_version_3_on() -> None:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60000, producer_id=5, producer_epoch=1)
    assert_bytes(request, 3, "02 78 00 00 ea 60 00 00 00 00 00 00 00 05 00 01 00")


def test_one_transaction_is_named_until_version_3() -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=5,
        v3_and_below_producer_epoch=1,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    assert_bytes(request, 0, "00 01 78 00 00 00 00 00 00 00 05 00 01 00 00 00 01 00 01 74 00 00 00 01 00 00 00 00")


def test_many_transactions_are_named_from_version_4_on() -> None:
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id="x",
                producer_id=5,
                producer_epoch=1,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
        ]
    )
    assert_bytes(request, 4, "02 02 78 00 00 00 00 00 00 00 05 00 01 01 02 02 74 02 00 00 00 00 00 00 00")


def test_the_next_epoch_comes_with_the_end_from_version_5_on() -> None:
    reply = EndTxnResponse(producer_id=5, producer_epoch=2)
    assert_bytes(reply, 5, "00 00 00 00 00 00 00 00 00 00 00 00 00 05 00 02 00")
