"""Results of the helpers of a test: records, transactions and groups, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Record(NamedTuple):
    """A record of a topic. timestamp_ms: since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id.

    state:      `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit` or `CompleteAbort`.
    partitions: those that are part of the transaction, while one is open.
    start_ms:   begin of the open transaction, in milliseconds since 1970; None if none is open.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[Partition, ...]

    @property
    def is_open(self) -> bool:
        return self.state in ("Ongoing", "PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, with the partitions that it was assigned."""

    member_id: str
    client_id: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A group.

    kind:    `classic`, `consumer`, `share` or `streams`.
    state:   `Stable`, `PreparingRebalance`, `CompletingRebalance`, `Empty` or `Dead`, and for the newer protocols
             `Assigning` and `Reconciling`, too.
    offsets: the committed ones. lag: how many records a read_committed consumer has not committed yet, by partition.
    """

    group_id: str
    kind: str
    state: str
    members: tuple[Member, ...]
    offsets: dict[Partition, int] = field(default_factory=dict)
    lag: dict[Partition, int] = field(default_factory=dict)

    @property
    def total_lag(self) -> int:
        return sum(self.lag.values())
