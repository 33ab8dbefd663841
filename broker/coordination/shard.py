"""A coordinator's shard and what it decides: the vocabulary that the pure coordinators share with the runtime. Pure.

A shard is the state of one partition of an internal topic. `decide` functions read it and return a `Decision`; only
carrying that out changes it, by `settle` and `apply`. So a decision that the log refuses has changed nothing.
Source: Kafka's CoordinatorShard and CoordinatorResult.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from fencepost.broker.log.verification import VerificationGuard
    from fencepost.protocol.errors import ErrorCode

ReplyT = TypeVar("ReplyT")

MAX_REMEMBERED_KEYS = 16_384
_UTF_16 = f"utf-16-{sys.byteorder[0]}e"
_HASHED_UNITS = 256  # of UTF-16, at a time: keys are as long as clients like
_POWERS_OF_31 = [pow(31, exponent, 1 << 32) for exponent in range(_HASHED_UNITS, -1, -1)]
LONGEST_REMEMBERED_KEY = 256
"""In characters. Clients choose ids, of up to 32 KiB, and what is remembered of them stays."""


def partition_for_key(key: str, partition_count: int) -> int:
    """The partition of an internal topic that owns a transactional id or a group id.

    Java's String.hashCode over UTF-16 code units, its absolute value (that of -2^31 is 0), modulo the partition count.
    Source: Kafka's TransactionStateManager.partitionFor and GroupCoordinator.partitionFor.
    """
    if len(key) <= LONGEST_REMEMBERED_KEY:
        return _remembered_partition(key, partition_count)
    return _partition_for_key(key, partition_count)


def _partition_for_key(key: str, partition_count: int) -> int:
    units = array("H", key.encode(_UTF_16, "surrogatepass"))
    code = 0
    for position in range(0, len(units), _HASHED_UNITS):
        some = units[position : position + _HASHED_UNITS]
        count = len(some)
        code = (code * _POWERS_OF_31[-count - 1] + sum(map(mul, some, _POWERS_OF_31[-count:]))) & 0xFFFFFFFF
    if code >= 0x80000000:
        code = 0x100000000 - code
    return (0 if code == 0x80000000 else code) % partition_count


_remembered_partition = lru_cache(MAX_REMEMBERED_KEYS)(_partition_for_key)
"""Asked at every commit and heartbeat."""


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic: serialized key, and value or None for a tombstone.

    decoded: what the shard would decode from key and value, where the decision has it at hand and its kind of record is
             frequent: `Shard.apply_decided` takes it in. Else None. It does not reach the log: whoever loads the record
             reads its bytes.
    """

    key: bytes
    value: bytes | None
    decoded: Any = None


@dataclass(frozen=True, slots=True)
class Parked:
    """In place of a reply: the request waits until a later decision answers this token (a member waiting for a
    rebalance).
    """

    token: Hashable


class Decision(NamedTuple, Generic[ReplyT]):
    """What a request leads to. The shard is unchanged until the records are applied.

    reply:    sent when everything the decision was computed from is durable; or `Parked`.
    records:  appended as one batch, in this order, then applied one by one.
    producer: (producer id, epoch) when the records belong to a transaction (TxnOffsetCommit); they become pending until
              its marker.
    answers:  replies to requests parked before, by token; they leave with this decision, in this order.
    guard:    what `PartitionLog.begin_verification` gave for the producer, if it asked for verification (KIP-890).
    settle:   changes what lives in memory only, and logs what has happened: called in the same step, once the records
              are in the log and before they are applied. Never called where the log refuses them.
    on_refused: called instead, in the same step, with the log's error: for a shard that decides on less next time.
    """

    reply: ReplyT | Parked
    records: Sequence[CoordinatorRecord] = ()
    producer: tuple[int, int] | None = None
    parked_replies: Sequence[tuple[Hashable, Any]] = ()
    guard: VerificationGuard | None = None
    settle: Callable[[], None] | None = None
    on_refused: Callable[[ErrorCode], None] | None = None


class RecordOrigin(NamedTuple):
    """Where an applied record stands in the log, and the transaction it belongs to (producer id -1 when none)."""

    offset: int
    timestamp_ms: int
    producer_id: int = -1
    producer_epoch: int = -1


class Shard(Protocol):
    """The pure state of one partition of a coordinator."""

    def apply(self, key: bytes, value: bytes | None, origin: RecordOrigin) -> None:
        """Take in one record. A key of an unknown kind is left out, with a warning, as Kafka does (KIP-915).

        Raises DecodeError for a record that says what cannot be, or of which the value's version is unknown: without
        it, what it replaces would be believed. A record that a decision of this shard made never is one.
        """
        ...

    def apply_decided(self, decoded: Any, offset: int, producer_id: int) -> None:
        """Take in a record that was decided here by its `CoordinatorRecord.decoded`, as `apply` does by its bytes.

        Only for shards whose records have one. `offset` and `producer_id` are those of its `RecordOrigin`.
        """
        ...

    def apply_marker(self, producer_id: int, producer_epoch: int, *, committed: bool, offset: int) -> None:
        """Take in the end of a transaction that wrote to this partition."""
        ...

    def loaded(self, now_ms: int) -> None:
        """Called once after the last replayed record: what only lives in memory (timers, sessions) starts here."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When `decide_deadline` has something to do; None when nothing waits for time."""
        ...

    def decide_deadline(self, now_ms: int) -> Decision[None]:
        """What the passing of time leads to. May be called early; then it decides nothing."""
        ...
