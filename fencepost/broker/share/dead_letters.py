"""Dead letters of a share partition: which records a copy has, under which sequence, and how they look. Pure.

A copy is decided before it is made: `DeadLetterCopy` in the share state names the records, the partition of the
dead-letter topic, and the producer id and sequence of the batch. So a copy that is repeated after a crash, by any node,
is the same batch again, and the log of the dead-letter topic drops it.
Source: KIP-1191; Kafka's ShareGroupDLQRecordHelper, ShareGroupDLQValidator and ShareGroupDLQManager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import HEADER_BYTES, build_batch
from fencepost.protocol.stored.share_group_state import DeadLetterCopy

NO_OFFSET: Final = -1
PRODUCER_EPOCH: Final = 0
MOST_RECORDS: Final = 500
"""Of one copy: it is built in one step."""
COPY_BYTES: Final = 1024 * 1024
"""No further original is read for a copy that has as many bytes."""
HIGHEST_SEQUENCE: Final = 2**31 - 1
RECORD_OVERHEAD_BYTES: Final = 32
"""More than the lengths and deltas of one record take."""

REJECTED: Final = "Offset rejected by client."
DELIVERED_TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."

Headers = tuple[tuple[str, bytes | None], ...]


class DeadLetterTarget(NamedTuple):
    """A partition of a dead-letter topic. maximum_bytes: the bound of a batch."""

    topic: str
    topic_id: bytes
    partition: int
    maximum_bytes: int


class Origin(NamedTuple):
    """The part that all records of a copy have in common. reason: for people."""

    topic: str
    partition: int
    group_id: str
    delivery_count: int
    reason: str


def reason_of(*, is_rejected: bool, delivery_count: int, delivery_count_limit: int) -> str:
    """The reason in the headers. That of a rejected record is not stored; after a restart it follows from the count, as
    in Kafka."""
    return DELIVERED_TOO_OFTEN if delivery_count >= delivery_count_limit and not is_rejected else REJECTED


# Decisions


def is_under_way(copy: DeadLetterCopy | None) -> bool:
    """Whether a copy was decided and may have been made, but is not known to be complete."""
    return copy is not None and copy.first_offset != NO_OFFSET


def can_follow(copy: DeadLetterCopy | None, target: DeadLetterTarget) -> bool:
    """Whether the next copy continues the sequences of the last one: it goes to the same partition of the same topic,
    and they do not run out. Otherwise it needs a producer id of its own."""
    return (
        copy is not None
        and (copy.topic_id, copy.partition) == (target.topic_id, target.partition)
        and copy.base_sequence <= HIGHEST_SEQUENCE - 2 * MOST_RECORDS
    )


def next_copy(
    last: DeadLetterCopy | None, target: DeadLetterTarget, producer_id: int | None, first_offset: int, last_offset: int
) -> DeadLetterCopy:
    """Decide on a copy, none being under way. producer_id: a new one; None to continue the last copy's sequences."""
    if producer_id is None:
        assert last is not None
        return _with(last, last.base_sequence, first_offset, last_offset)
    return DeadLetterCopy(target.topic_id, target.partition, producer_id, 0, first_offset, last_offset)


def completed(copy: DeadLetterCopy) -> DeadLetterCopy:
    """The copy after its batch is durable in the dead-letter topic."""
    sequence = copy.base_sequence + copy.last_offset - copy.first_offset + 1
    return _with(copy, sequence, NO_OFFSET, NO_OFFSET)


def given_up(copy: DeadLetterCopy | None) -> DeadLetterCopy:
    """The copy if its records are archived uncopied. Its sequence may be in use: it is never continued."""
    copy = DeadLetterCopy() if copy is None else copy
    return _with(copy, HIGHEST_SEQUENCE, NO_OFFSET, NO_OFFSET)


def _with(copy: DeadLetterCopy, base_sequence: int, first_offset: int, last_offset: int) -> DeadLetterCopy:
    return DeadLetterCopy(copy.topic_id, copy.partition, copy.producer_id, base_sequence, first_offset, last_offset)


# Records


def dead_letter_headers(origin: Origin, offset: int) -> Headers:
    """Kafka's headers; numbers are decimal text."""
    return (
        ("__dlq.errors.topic", origin.topic.encode()),
        ("__dlq.errors.partition", str(origin.partition).encode()),
        ("__dlq.errors.offset", str(offset).encode()),
        ("__dlq.errors.group", origin.group_id.encode()),
        ("__dlq.errors.delivery.count", str(origin.delivery_count).encode()),
        ("__dlq.errors.message", origin.reason.encode()),
    )


def dead_letters(
    origin: Origin, first_offset: int, last_offset: int, sources: Mapping[int, Record], now_ms: int
) -> list[Record]:
    """The records of a copy, one for each offset: of an offset without a source, only the headers.

    sources: the original records that are copied, by offset.
    """
    records = []
    for offset in range(first_offset, last_offset + 1):
        headers = dead_letter_headers(origin, offset)
        source = sources.get(offset)
        if source is None:
            records.append(Record(offset, now_ms, None, None, headers))
        else:
            records.append(Record(offset, now_ms, source.key, source.value, source.headers + headers))
    return records


def fitting(records: Sequence[Record], maximum_bytes: int) -> list[Record]:
    """The first records that fit into one batch together: at least one. If it is too large alone, it is left without
    the original key, value and headers."""
    fit: list[Record] = []
    size_bytes = HEADER_BYTES
    for record in records[:MOST_RECORDS]:
        size_bytes += most_bytes(record)
        if size_bytes > maximum_bytes:
            break
        fit.append(record)
    return fit or [without_original(records[0])]


def without_original(record: Record) -> Record:
    """The dead letter with Kafka's headers alone."""
    return record._replace(key=None, value=None, headers=record.headers[-6:])


def most_bytes(record: Record) -> int:
    """A bound of the size of a record in a batch."""
    content = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
    return content + sum(len(name.encode()) + len(value or b"") + 10 for name, value in record.headers)


def batch_of(copy: DeadLetterCopy, records: Sequence[Record]) -> bytearray:
    """The batch of a copy: one record for each of its offsets."""
    return build_batch(
        records,
        producer_id=copy.producer_id,
        producer_epoch=PRODUCER_EPOCH,
        base_sequence=copy.base_sequence,
    )
