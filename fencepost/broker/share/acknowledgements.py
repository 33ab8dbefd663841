"""Acknowledgements of a request, checked for form before they meet the share partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fencepost.protocol.messages.share_fetch import AcknowledgementBatch


class AcknowledgeType(IntEnum):
    """Type of an acknowledgement; the numbers of ShareAcknowledge. A gap is an offset without a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Acknowledgement(NamedTuple):
    """Acknowledgement of a range; both offsets inclusive. types: one for all, or one for each record."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


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


def runs_of(acknowledgement: Acknowledgement, start_offset: int) -> list[tuple[int, int, AcknowledgeType]]:
    """Return ranges of one type each, from the start offset on."""
    first_offset, last_offset, types = acknowledgement
    if len(types) == 1:
        return [(max(first_offset, start_offset), last_offset, AcknowledgeType(types[0]))]
    runs: list[tuple[int, int, AcknowledgeType]] = []
    for offset, number in enumerate(types, start=first_offset):
        if offset < start_offset:
            continue
        acknowledge_type = AcknowledgeType(number)
        if runs and runs[-1][2] is acknowledge_type:
            runs[-1] = (runs[-1][0], offset, acknowledge_type)
        else:
            runs.append((offset, offset, acknowledge_type))
    return runs
