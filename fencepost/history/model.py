"""Model of a history: clients, their records and transactions, the observed logs of the partitions, and the runs in
which consumers read them.

All lines are line numbers from 1; 0 means that the history has no such line. Offsets count records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from enum import Enum


class SendOutcome(Enum):
    """Outcome of a send, as its client knows it."""

    OK = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"


class TransactionOutcome(Enum):
    """Outcome of a transaction, as its client knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "never ended"
    UNKNOWN = "commit of unknown outcome"


@dataclass(slots=True, eq=False)
class Client:
    """One session of a client, from a `start` to the next.

    started_line:        line of its `start`, or its first line without one.
    unclaimed_reads:     committed transactions read since its last transaction ended: they count as read by the
                         next one. The value is the reading line and the record read.
    seeks:               the last seek per partition: line and position, None if it is not known.
    """

    name: str
    started_line: int
    isolation_is_committed: bool = False
    is_idempotent: bool = True
    acks: int = -1
    group_id: str | None = None
    transaction: Transaction | None = None
    former_transaction: Transaction | None = None
    unclaimed_reads: dict[Transaction, tuple[int, Send]] = field(default_factory=dict)
    runs: dict[Partition, Run] = field(default_factory=dict)
    seeks: dict[Partition, tuple[int, int | None]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f'"{self.name}"'


@dataclass(slots=True, eq=False)
class Send:
    """One record, from its invocation on.

    partition:           None while neither the client nor a consumer has reported it.
    acknowledged_offset: offset in the acknowledgement to the client, None without one.
    offset:              the record's offset in the partition, by acknowledgement or by a read; None if unknown.
    outcome_line:        the line of the outcome.
    read_line, reader:   its first read by any client.
    committed_read_line: the first read by a read_committed consumer after the commit was invoked, if any.
    final_read_line:     a final read that contains it.
    is_displaced:        it was seen at another place, or another record at its place; this is reported separately.
    """

    client: Client
    line: int
    topic: str
    value: str
    partition: Partition | None
    transaction: Transaction | None
    inputs: list[str] | None
    outcome: SendOutcome = SendOutcome.UNKNOWN
    outcome_line: int = 0
    acknowledged_offset: int | None = None
    offset: int | None = None
    read_line: int = 0
    reader: Client | None = None
    committed_read_line: int = 0
    committed_reader: Client | None = None
    final_read_line: int = 0
    is_displaced: bool = False

    @property
    def is_acknowledged(self) -> bool:
        """Whether the system acknowledged it: the send itself, or the commit that flushed it."""
        if self.outcome is SendOutcome.OK:
            return self.client.acks == -1
        transaction = self.transaction
        return (
            self.outcome is SendOutcome.UNKNOWN
            and self.outcome_line == 0
            and transaction is not None
            and transaction.outcome is TransactionOutcome.COMMITTED
        )

    @property
    def exists(self) -> bool:
        """Whether the log certainly contains it."""
        return self.read_line > 0 or self.is_acknowledged

    def is_visible(self, *, committed: bool) -> bool:
        """Whether every consumer that reads past it must see it; committed: at isolation level read_committed."""
        if self.outcome is SendOutcome.FAILED or self.is_displaced:
            return False
        if committed and self.transaction is not None and not self.transaction.is_committed:
            return False
        return self.exists

    @property
    def settled_line(self) -> int:
        """The line from which on a final read must contain it; 0 if none must."""
        line = self.outcome_line if self.outcome is SendOutcome.OK else self.read_line
        if self.transaction is None:
            return line
        return max(line, self.transaction.settled_line)


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one client.

    commit_line, abort_line: the first invocation of either, 0 if there was none.
    end_line:                the `ok` of commit or abort.
    possible_commit_count:   calls of commit that have not failed.
    is_attempted:            a commit is under way or its outcome is unknown.
    inputs_without_records:  line and value of inputs that no sent record names.
    evidence_line:           a client saw it committed; `evidence` describes the sighting.
    offsets_seen_line:       a client fetched offsets that only this transaction committed: `offsets_seen`.
    reads:                   transactions whose committed records its client read for it: line and record.
    """

    client: Client
    line: int
    reads: dict[Transaction, tuple[int, Send]]
    former: Transaction | None
    sends: list[Send] = field(default_factory=list)
    offset_commits: list[OffsetCommit] = field(default_factory=list)
    inputs_without_records: list[tuple[int, str]] = field(default_factory=list)
    commit_line: int = 0
    abort_line: int = 0
    end_line: int = 0
    outcome: TransactionOutcome = TransactionOutcome.OPEN
    possible_commit_count: int = 0
    evidence_line: int = 0
    evidence: str = ""
    offsets_seen_line: int = 0
    offsets_seen: str = ""

    @property
    def is_committed(self) -> bool:
        """Whether it is certainly committed: its client got the reply, or a client saw it."""
        return self.outcome is TransactionOutcome.COMMITTED or (
            self.outcome is TransactionOutcome.UNKNOWN and self.evidence_line > 0
        )

    @property
    def may_be_committed(self) -> bool:
        """Whether no line contradicts that it is committed."""
        return self.outcome in (TransactionOutcome.COMMITTED, TransactionOutcome.UNKNOWN)

    @property
    def settled_line(self) -> int:
        """The line after which a final read, or final offsets, must contain it; only for a committed transaction.

        Once all clients are done, a commit of unknown outcome has happened or never will.
        """
        return self.end_line if self.outcome is TransactionOutcome.COMMITTED else self.commit_line

    @property
    def known_line(self) -> int:
        """The line at which it was certainly committed; only for a committed transaction."""
        return self.end_line if self.outcome is TransactionOutcome.COMMITTED else self.evidence_line

    def __str__(self) -> str:
        return f"the transaction that {self.client} began in line {self.line}"


@dataclass(slots=True, eq=False)
class OffsetCommit:
    """One committed offset of one group, in a transaction or outside.

    seek: the client's last seek in the partition before it: line (0 if there was none) and position, None if unknown.
    """

    client: Client
    group_id: str
    partition: Partition
    offset: int
    line: int
    transaction: Transaction | None
    seek: tuple[int, int | None]
    outcome: SendOutcome = SendOutcome.UNKNOWN
    outcome_line: int = 0

    @property
    def surely_took_effect(self) -> bool:
        """Whether it was acknowledged and, in a transaction, committed."""
        transaction = self.transaction
        if transaction is None:
            return self.outcome is SendOutcome.OK
        return transaction.is_committed and self.outcome is not SendOutcome.FAILED

    @property
    def may_have_taken_effect(self) -> bool:
        """Whether no line contradicts that it took effect."""
        if self.outcome is SendOutcome.FAILED:
            return False
        return self.transaction is None or self.transaction.may_be_committed


@dataclass(slots=True, eq=False)
class FetchedOffset:
    """A group's committed offset, as a client fetched it; offset: None if there was none."""

    client: Client
    group_id: str
    partition: Partition
    offset: int | None
    line: int
    invoke_line: int
    is_final: bool


@dataclass(slots=True, eq=False)
class Run:
    """Records that one consumer read of one partition between two resets of its position.

    offsets:               strictly increasing.
    poll_lines:            line of each poll, with `poll_starts`, the index of its first record in `offsets`.
    start_offset:          its position before the first record, if known.
    end_offset:            end of the range of a final read; None otherwise.
    invoke_line:           line of the invocation of a final read.
    family:                the runs, this one included, between which the consumer went back without a known reason: the
                           others have not missed a record that one of them has.
    """

    client: Client
    partition: Partition
    start_offset: int | None
    line: int
    end_offset: int | None = None
    invoke_line: int = 0
    next_offset: int = -1
    family: list[Run] = field(default_factory=list)
    offsets: array[int] = field(default_factory=lambda: array("q"))
    poll_lines: list[int] = field(default_factory=list)
    poll_starts: list[int] = field(default_factory=list)

    def holds(self, offset: int) -> bool:
        """Whether the record at this offset was read."""
        index = bisect_left(self.offsets, offset)
        return index < len(self.offsets) and self.offsets[index] == offset


@dataclass(slots=True, eq=False)
class Partition:
    """One partition; log: by offset, the record that was acknowledged or read there first."""

    topic: str
    number: int
    log: dict[int, Send] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True)
class EarlyRead:
    """A read_committed consumer read a record of a transaction before its commit was invoked."""

    send: Send
    line: int
    reader: Client


@dataclass(frozen=True, slots=True)
class OffsetConflict:
    """Line `line` reports `send` at `offset` of `partition`, where an earlier line reported `other`."""

    partition: Partition
    offset: int
    send: Send
    line: int
    other: Send


@dataclass(frozen=True, slots=True)
class SecondPlace:
    """In `line`, a record that `first_line` placed at `first_offset` was placed at another offset (or partition)."""

    send: Send
    line: int
    partition: Partition
    offset: int
    first_line: int
    first_partition: Partition
    first_offset: int


@dataclass(frozen=True, slots=True)
class BackwardRead:
    """A poll returned a record that its consumer had already passed; former_line: the poll that had passed it."""

    client: Client
    partition: Partition
    offset: int
    line: int
    former_offset: int
    former_line: int


@dataclass(frozen=True, slots=True)
class ForeignRead:
    """A read of a value that no earlier send has."""

    client: Client
    partition: Partition
    offset: int
    value: str
    line: int


@dataclass(slots=True)
class History:
    """A whole history."""

    line_count: int = 0
    torn_line_count: int = 0
    operation_count: int = 0
    partitions: dict[tuple[str, int], Partition] = field(default_factory=dict)
    sends: dict[str, Send] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    offset_commits: list[OffsetCommit] = field(default_factory=list)
    fetched_offsets: list[FetchedOffset] = field(default_factory=list)
    compacted_topics: set[str] = field(default_factory=set)
    early_reads: list[EarlyRead] = field(default_factory=list)
    offset_conflicts: list[OffsetConflict] = field(default_factory=list)
    second_places: list[SecondPlace] = field(default_factory=list)
    backward_reads: list[BackwardRead] = field(default_factory=list)
    foreign_reads: list[ForeignRead] = field(default_factory=list)
    topics_sent_to: set[str] = field(default_factory=set)
