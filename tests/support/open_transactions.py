"""Many open transactions at once, without a producer for each: the requests that open them, in two rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from fencepost.protocol.schema import decode
from fencepost.two_phase import Token
from tests.support.wire import WireConnection, request_frame

TIMEOUT_MS = 600_000
FLEXIBLE_HEADER_BYTES = 5


def open_transactions(
    host: str, port: int, topic: str, transactional_ids: Sequence[str], *, timeout_ms: int = TIMEOUT_MS
) -> list[Token]:
    """Open a transaction of each id, with partition 0 of a topic in it and no record; returns their tokens."""
    with WireConnection(host, port) as connection:
        inits = [InitProducerIdRequest(name, transaction_timeout_ms=timeout_ms) for name in transactional_ids]
        tokens = [
            Token(reply.producer_id, reply.producer_epoch, name)
            for name, reply in zip(transactional_ids, _calls(connection, inits, InitProducerIdResponse, 4), strict=True)
        ]
        joins = [
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=token.transactional_id,
                v3_and_below_producer_id=token.producer_id,
                v3_and_below_producer_epoch=token.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )
            for token in tokens
        ]
        for reply in _calls(connection, joins, AddPartitionsToTxnResponse, 3):
            (of_topic,) = reply.results_by_topic_v3_and_below
            assert [of_partition.partition_error_code for of_partition in of_topic.results_by_partition] == [0]
    return tokens


def _calls(connection: WireConnection, requests: Sequence[Any], response_type: type[Any], version: int) -> list[Any]:
    connection.send(b"".join(request_frame(request, version) for request in requests))
    replies = [connection.receive_frame() for _ in requests]
    assert None not in replies, "the broker closed the connection"
    return [decode(response_type, reply, version, FLEXIBLE_HEADER_BYTES) for reply in replies if reply is not None]
