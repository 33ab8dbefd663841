"""Types shared by pure coordinators and the runtime: `Shard`, `Decision` and their records. Pure.

A shard is the state of one partition of an internal topic. `decide` functions read it and return a `Decision`; the
runtime appends the records, then changes the shard by `settle` and `apply`. If the log refuses them, neither is called.
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
    from fencepost.broker.log.producers.verification import VerificationGuard
    from fencepost.protocol.errors import ErrorCode

ReplyT = TypeVar("ReplyT")

MAX_REMEMBERED_KEYS = 16_384
_UTF_16 = f"utf-16-{sys.byteorder[0]}e"
_HASHED_UNITS = 256  # of UTF-16, at a time: clients choose the length of keys
_POWERS_OF_31 = [pow(31, exponent, 1 << 32) for exponent in range(_HASHED_UNITS, -1, -1)]
LONGEST_REMEMBERED_KEY = 256
"""In characters. Clients choose ids of up to 32 KiB, and remembered ids stay in memory."""


def partition_for_key(key: str, partition_count: int) -> int:
    """Return the partition of an internal topic that owns a transactional id or a group id.

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
"""Cached: every commit and heartbeat needs it."""


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic: serialized key, and value or None for a tombstone.

    decoded: decoded form of key and value, if the decision has it and this kind of record is frequent:
             `Shard.apply_decided` applies it. Else None. It does not reach the log: a load reads the bytes of the
             record.
    """

    key: bytes
    value: bytes | None
    decoded: Any = None


@dataclass(frozen=True, slots=True)
class Parked:
    """Placeholder for a reply: the request waits until a later decision answers this token (as in a rebalance)."""

    token: Hashable


class Decision(NamedTuple, Generic[ReplyT]):
    """Result of a request: reply and records. The shard is unchanged until the records are applied.

    reply:    sent when everything the decision was computed from is durable; or `Parked`.
    records:  appended as one batch, in this order, then applied one by one.
    producer: (producer id, epoch) when the records belong to a transaction (TxnOffsetCommit); they become pending until
              its marker.
    answers:  replies to requests parked before, by token; they leave with this decision, in this order.
    guard:    result of `PartitionLog.begin_verification`, if the producer was verified (KIP-890).
    settle:   changes state that is in memory only, and logs events: called in the same step, once the records are in
              the log and before they are applied. Never called if the log refuses them.
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
    """Position of an applied record in the log, and its transaction (producer id -1 if none)."""

    offset: int
    timestamp_ms: int
    producer_id: int = -1
    producer_epoch: int = -1


class Shard(Protocol):
    """The pure state of one partition of a coordinator."""

    def apply(self, key: bytes, value: bytes | None, origin: RecordOrigin) -> None:
        """Apply one record. Skip a key of an unknown kind, with a warning, as Kafka does (KIP-915).

        Raises DecodeError for an impossible record or an unknown version of a value: without it, the record that it
        replaces would count. Records of this shard's own decisions never raise.
        """
        ...

    def apply_decided(self, decoded: Any, offset: int, producer_id: int) -> None:
        """Take in a record that was decided here by its `CoordinatorRecord.decoded`, as `apply` does by its bytes.

        Only for shards whose records have one. `offset` and `producer_id` are those of its `RecordOrigin`.
        """
        ...

    def apply_marker(self, producer_id: int, producer_epoch: int, *, committed: bool, offset: int) -> None:
        """Apply the marker of a transaction that wrote to this partition."""
        ...

    def loaded(self, now_ms: int) -> None:
        """Start the parts that are in memory only (timers, sessions): called once, after the last replayed record."""
        ...

    def clock_moved(self, moved_ms: int, now_ms: int) -> None:
        """Move the deadlines along with a wall clock that was set ahead, or back (negative), and now shows now_ms."""

    def next_deadline_ms(self) -> int | None:
        """The time of the next `decide_deadline`; None if there is none."""
        ...

    def decide_deadline(self, now_ms: int) -> Decision[None]:
        """Decide on deadlines that are due. May be called early; then it decides nothing."""
        ...
