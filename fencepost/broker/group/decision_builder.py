"""Builder of the group coordinator's decisions: it collects records, replies to parked requests and changes in memory.

The settings of groups and the kinds of deadlines are defined here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fencepost.broker.coordination.shard import CoordinatorRecord, Decision, Parked
from fencepost.broker.kernel.deadlines import Deadlines

ReplyT = TypeVar("ReplyT")


class GroupTimes(NamedTuple):
    """Times of one group of the consumer protocol, or one share group, which may differ from the broker's.

    assignment_interval_ms: minimum time between two target assignments.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class StreamsTimes(NamedTuple):
    """Times and standby count of one streams group, which may differ from the broker's.

    assignment_interval_ms:     minimum time between two target assignments.
    initial_rebalance_delay_ms: time for which a group that was empty waits for more members.
    num_standby_replicas:       number of copies of each task's state.
    rack_aware_assignment_tags: keys of the client tags that every member needs.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    num_standby_replicas: int = 0
    rack_aware_assignment_tags: tuple[str, ...] = ()


DEFAULT_TIMES = GroupTimes()
DEFAULT_STREAMS_TIMES = StreamsTimes()


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of the pure coordinator, under Kafka's names. The times are looked up by group id.

    max_record_bytes: the largest record that `__consumer_offsets` accepts by default.
    """

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    max_record_bytes: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer_times: Callable[[str], GroupTimes] = lambda _: DEFAULT_TIMES
    consumer_max_size: int = 2_147_483_647
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    share_times: Callable[[str], GroupTimes] = lambda _: DEFAULT_TIMES
    share_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000
    streams_times: Callable[[str], StreamsTimes] = lambda _: DEFAULT_STREAMS_TIMES
    streams_max_size: int = 2_147_483_647


class DeadlineKind(IntEnum):
    SESSION = 0  # of a member
    PENDING_MEMBER = 1  # of a member id that was assigned and has not joined
    JOIN = 2  # of a group that prepares a rebalance
    SYNC = 3  # of a group whose members have to send SyncGroup
    SWEEP = 4  # of the shard: expire offsets
    REVOCATION = 5  # of a member of the consumer protocol that has to revoke partitions
    CLASSIC_JOIN = 6  # of a classic member of such a group that has to join again
    CLASSIC_SYNC = 7  # of a classic member of such a group that has joined
    DOWNGRADE = 8  # of a group whose last member of the consumer protocol has left: it becomes classic immediately
    CLASSIC_REBALANCE = 9  # of a group that has just become classic: its members rebalance
    FIRST_ASSIGNMENT = 10  # of a streams group that was empty: it waits for more members


class DeadlineKey(NamedTuple):
    kind: DeadlineKind
    group_id: str = ""
    member_id: str = ""


GroupDeadlines = Deadlines[DeadlineKey]


@dataclass(slots=True)
class DecisionBuilder:
    """Collected parts of one decision. Deciding reads groups and deadlines and changes none of them.

    deadlines:         deadlines before the decision.
    emptied_group_ids: groups for which `records` already holds the generation without members.
    moved:             deadlines that the decision sets, or clears (None).
    changes:           functions that change groups in memory, called between the append and the apply of the records.
    notes:             functions that write log lines, called last.
    """

    now_ms: int
    deadlines: GroupDeadlines
    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[tuple[Hashable, Any]] = field(default_factory=list)
    emptied_group_ids: set[str] = field(default_factory=set)
    moved: dict[DeadlineKey, int | None] = field(default_factory=dict)
    changes: list[Callable[[], object]] = field(default_factory=list)
    notes: list[Callable[[], object]] = field(default_factory=list)

    def decision(self, reply: ReplyT | Parked) -> Decision[ReplyT]:
        return Decision(reply, records=self.records, parked_replies=self.answers, settle=self.settle)

    # Deadlines

    def deadline_ms(self, key: DeadlineKey) -> int | None:
        """Return the deadline after the changes of this decision so far."""
        return self.moved[key] if key in self.moved else self.deadlines.get(key)

    def set_deadline(self, key: DeadlineKey, deadline_ms: int) -> None:
        self.moved[key] = deadline_ms

    def clear_deadline(self, key: DeadlineKey) -> None:
        self.moved[key] = None

    # Log lines, size, merging, settling

    def note(self, write: Callable[..., object], event: str, **details: object) -> None:
        """Log a line, with this method of a logger, once the decision's records are in the log."""
        self.notes.append(partial(write, event, **details))

    @property
    def size_bytes(self) -> int:
        """Size of the records' keys and values."""
        return sum(len(record.key) + len(record.value or b"") for record in self.records)

    def add(self, other: DecisionBuilder) -> None:
        """Merge another decision, about other groups, into this one."""
        self.records += other.records
        self.answers += other.answers
        self.emptied_group_ids |= other.emptied_group_ids
        self.moved |= other.moved
        self.changes += other.changes
        self.notes += other.notes

    def settle(self) -> None:
        """Carry out the changes in memory, the deadlines and the log lines: the records are in the log."""
        for change in self.changes:
            change()
        deadlines = self.deadlines
        for key, deadline_ms in self.moved.items():
            if deadline_ms is None:
                deadlines.clear(key)
            else:
                deadlines.set(key, deadline_ms)
        for note in self.notes:
            note()
