"""Markers as a coordinator of transaction version 1 writes them."""

from __future__ import annotations

from fencepost.broker.log.partition_log import PartitionLog
from fencepost.protocol.errors import ErrorCode
from tests.support.log_world import NOW_MS


def end_in_log(
    log: PartitionLog, producer_id: int, producer_epoch: int = 0, *, committed: bool = True, now_ms: int = NOW_MS
) -> ErrorCode:
    """End a producer's transaction in one partition."""
    return log.append_marker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        coordinator_epoch=0,
        transaction_version=0,
        now_ms=now_ms,
    )
