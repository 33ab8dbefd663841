"""Many open transactions at once, without a producer for each: the requests that open them, in two rounds."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fencepost.two_phase import Token
from scripts.benchmarks.client import Client, error_of, init_producers, wait_until_answered

TIMEOUT_MS = 600_000


def open_transactions(
    host: str, port: int, topic: str, transactional_ids: Sequence[str], *, timeout_ms: int = TIMEOUT_MS
) -> list[Token]:
    """Open a transaction of each id, with partition 0 of a topic in it and no record; returns their tokens."""
    with Client((host, port)) as client:
        tokens = [
            Token(producer_id, producer_epoch, name)
            for name, (producer_id, producer_epoch) in zip(
                transactional_ids, init_producers(client, transactional_ids, timeout_ms), strict=True
            )
        ]
        additions = [
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=token.transactional_id,
                v3_and_below_producer_id=token.producer_id,
                v3_and_below_producer_epoch=token.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )
            for token in tokens
        ]
        for addition, reply in zip(additions, list(client.pipeline(additions)), strict=True):
            if error_of(reply) is not ErrorCode.NONE:
                wait_until_answered(client, addition)
    return tokens
