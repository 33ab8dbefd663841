"""What one decision of the group coordinator collects on its way: the settings it goes by, records to write, parked
requests to answer, and what changes in memory once the records are in the log.
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


class ConsumerTimes(NamedTuple):
    """What one group of the consumer protocol goes by; a group may have settings of its own.

    assignment_interval_ms: how long a target assignment is kept at least.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class ShareTimes(NamedTuple):
    """What one share group goes by; a group may have settings of its own.

    assignment_interval_ms: how long a target assignment is kept at least.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class StreamsTimes(NamedTuple):
    """What the members of one streams group go by; a group may have settings of its own.

    assignment_interval_ms:     how long a target assignment is kept at least.
    initial_rebalance_delay_ms: how long a group that was empty waits for more members.
    num_standby_replicas:       how many copies of the state of each task are kept.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    num_standby_replicas: int = 0


DEFAULT_CONSUMER_TIMES = ConsumerTimes()
DEFAULT_SHARE_TIMES = ShareTimes()
DEFAULT_STREAMS_TIMES = StreamsTimes()


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings that the pure coordinator goes by, named as Kafka names them. The times are by group id.

    max_record_bytes: the largest record that `__consumer_offsets` takes by default.
    """

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    max_record_bytes: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 604_800_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer_times: Callable[[str], ConsumerTimes] = lambda _: DEFAULT_CONSUMER_TIMES
    consumer_max_size: int = 2_147_483_647
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    share_times: Callable[[str], ShareTimes] = lambda _: DEFAULT_SHARE_TIMES
    share_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000
    streams_times: Callable[[str], StreamsTimes] = lambda _: DEFAULT_STREAMS_TIMES
    streams_max_size: int = 2_147_483_647


class DeadlineKind(IntEnum):
    SESSION = 0  # of a member
    PENDING_MEMBER = 1  # a member id was given out and has not joined
    JOIN = 2  # of a group that prepares a rebalance
    SYNC = 3  # of a group whose members have to ask for their assignment
    SWEEP = 4  # of the shard: look for expired offsets
    REVOCATION = 5  # of a member of the consumer protocol that has to give partitions up
    CLASSIC_JOIN = 6  # of a classic member of such a group that has to join again
    CLASSIC_SYNC = 7  # of one that has joined
    DOWNGRADE = 8  # of a group whose last member of the consumer protocol is gone: it becomes classic at once
    CLASSIC_REBALANCE = 9  # of a group that has just become classic: its members share anew
    FIRST_ASSIGNMENT = 10  # of a streams group that was empty: it waits for more members


class DeadlineKey(NamedTuple):
    kind: DeadlineKind
    group_id: str = ""
    member_id: str = ""


GroupDeadlines = Deadlines[DeadlineKey]


@dataclass(slots=True)
class DecisionBuilder:
    """Filled while a decision is made, which reads groups and deadlines and changes none of them.

    deadlines: as they are before the decision.
    emptied_group_ids:   groups for which `records` already holds the generation without members.
    moved:     deadlines that the decision sets, or clears (None).
    changes:   what changes groups in memory, called when the records are in the log and not yet applied.
    notes:     log lines about what has happened by then.
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
        return Decision(reply, records=self.records, answers=self.answers, settle=self.settle)

    # Deadlines

    def deadline_ms(self, key: DeadlineKey) -> int | None:
        """As it is after what was decided so far."""
        return self.moved[key] if key in self.moved else self.deadlines.get(key)

    def set_deadline(self, key: DeadlineKey, deadline_ms: int) -> None:
        self.moved[key] = deadline_ms

    def clear_deadline(self, key: DeadlineKey) -> None:
        self.moved[key] = None

    # Others

    def note(self, write: Callable[..., object], event: str, **details: object) -> None:
        """Have a line logged, by a method of a logger, when the decision's records are in the log."""
        self.notes.append(partial(write, event, **details))

    @property
    def size_bytes(self) -> int:
        """Of keys and values of the records."""
        return sum(len(record.key) + len(record.value or b"") for record in self.records)

    def add(self, other: DecisionBuilder) -> None:
        """Take over the effects of another decision, about other groups."""
        self.records += other.records
        self.answers += other.answers
        self.emptied_group_ids |= other.emptied_group_ids
        self.moved |= other.moved
        self.changes += other.changes
        self.notes += other.notes

    def settle(self) -> None:
        """The records are in the log."""
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
