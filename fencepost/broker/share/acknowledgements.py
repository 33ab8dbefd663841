"""Acknowledgements of a request, checked for form before they meet the share partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fencepost.broker.share.partition import Acknowledgement, AcknowledgeType

if TYPE_CHECKING:
    from fencepost.protocol.messages.share_fetch import AcknowledgementBatch


def read_acknowledgements(
    batches: Iterable[AcknowledgementBatch], *, knows_renewal: bool, is_renewal: bool
) -> list[Acknowledgement] | None:
    """Return the acknowledgements of a partition; None if they are malformed, which is INVALID_REQUEST.

    knows_renewal: whether the request's version can renew locks. is_renewal: whether the request renews locks.
    Source: Kafka's KafkaApis.validateAcknowledgementBatches.
    """
    highest_type = AcknowledgeType.RENEW if knows_renewal else AcknowledgeType.REJECT
    previous_last_offset = -1
    read = []
    for batch in batches:
        types = batch.acknowledge_types
        if (
            batch.first_offset > batch.last_offset
            or batch.first_offset < previous_last_offset
            or not _fits(types, batch.last_offset - batch.first_offset + 1)
            or not all(AcknowledgeType.GAP <= number <= highest_type for number in types)
            or (AcknowledgeType.RENEW in types and not is_renewal)
        ):
            return None
        previous_last_offset = batch.last_offset
        read.append(Acknowledgement(batch.first_offset, batch.last_offset, types))
    return read


def _fits(types: Sequence[int], record_count: int) -> bool:
    return len(types) in (1, record_count)
