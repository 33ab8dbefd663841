"""A streams group: its members, its topology, and which member has which tasks. Pure.

Members are threads of processes. As in a group of the consumer protocol the group epoch counts what changes the
assignment, a target is made for it, and members move towards that one by one. All of it changes only by records, see
`streams_records`.
Source: KIP-1071; Kafka's StreamsGroup and StreamsGroupMember.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.group.consumer.group import FIRST_GROUP_EPOCH, JOIN_EPOCH, MemberState
from fencepost.broker.group.streams.tasks import NO_OWNED_TASKS, OwnedTasks, TaskAssignment, TaskId, TaskRole

if TYPE_CHECKING:
    from fencepost.broker.group.streams.topology import ConfiguredTopology, Topology

STREAMS_PROTOCOL_TYPE = "streams"
FIRST_ASSIGNMENT_EPOCH = 1
"""Of a group that has no assignment yet; its members begin with it, and with no tasks."""


class StreamsGroupState(Enum):
    """The value is the name that StreamsGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"  # topics are missing, or have wrong partition counts
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberEndpoint(NamedTuple):
    """Where a process answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """One member.

    previous_member_epoch: the one before; a member whose last answer was lost still comes with it.
    topology_epoch:        of the topology that it came with.
    process_id:            members of one process share what it has on its disk: a task is there only once.
    assigned:              what it may run.
    pending_revocation:    what it has to give up, and may still commit offsets for.
    """

    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: MemberEndpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: OwnedTasks = NO_OWNED_TASKS
    pending_revocation: OwnedTasks = NO_OWNED_TASKS

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def owned_since(self, task: TaskId) -> int | None:
        """The epoch since which the task is the member's to process, also one to give up; None if it is not."""
        for owned in (self.assigned, self.pending_revocation):
            epoch = owned.active.get(task.subtopology_id, {}).get(task.partition)
            if epoch is not None:
                return epoch
        return None


@dataclass(slots=True)
class GroupMemory:
    """What a group knows that is in no record: it is lost with the coordinator, and found or asked for again.

    configured:     what a topology means with the topics of a version of the metadata, and which these are.
    endpoint_epoch: counts what changes where tasks can be asked for.
    """

    configured: tuple[Topology, int, ConfiguredTopology] | None = None
    endpoint_epoch: int = 0


class StreamsGroup:
    """One group. Members and assignments are replaced, never changed, so that a copy of the group is shallow.

    topology:                  as the first member told it; None before.
    validated_topology_epoch:  of the topology whose topics were all in order; -1 for none.
    assignment_configs:        what the last target was made by.
    target:                    by member id, what each is to have.
    shutdown_member_id:        the member because of which the whole application is to end; in no record.
    memory:                    what else is in no record; all copies of a group have the same.
    """

    group_type = "streams"
    protocol_type = STREAMS_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_GROUP_EPOCH
        self.metadata_hash = 0
        self.validated_topology_epoch = 0
        self.assignment_configs: Mapping[str, str] = {}
        self.assignment_epoch = FIRST_ASSIGNMENT_EPOCH
        self.assignment_timestamp_ms = 0
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.target: dict[str, TaskAssignment] = {}
        self.shutdown_member_id: str | None = None
        self.memory = GroupMemory()
        self._processes: dict[tuple[TaskRole, TaskId], tuple[str, ...]] = {}

    # Questions

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    def subscribed_topics(self) -> frozenset[str]:
        """Topics that members read; none in a group without members, so that its offsets may expire."""
        if not self.members or self.topology is None:
            return frozenset()
        return frozenset(self.topology.subtopology_of_source)

    def processes(self, role: TaskRole, task: TaskId) -> tuple[str, ...]:
        """The processes that have a task in this role, or have not confirmed yet that they gave it up."""
        return self._processes.get((role, task), ())

    # Changes

    def copy(self) -> StreamsGroup:
        """A group that can change on its own; what it consists of is shared."""
        other = StreamsGroup.__new__(StreamsGroup)
        other.__dict__.update(
            self.__dict__, members=dict(self.members), target=dict(self.target), _processes=dict(self._processes)
        )
        return other

    def put_member(self, member: StreamsMember) -> None:
        """Add a member, or replace the one with its id."""
        previous = self.members.get(member.member_id)
        if previous is not None:
            self._release(previous)
        for owned in (member.assigned, member.pending_revocation):
            for key in owned.tasks():
                self._processes[key] = (*self._processes.get(key, ()), member.process_id)
        self.members[member.member_id] = member

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
        if not self.members:
            self.shutdown_member_id = None

    def _release(self, member: StreamsMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for key in owned.tasks():
                processes = list(self._processes.get(key, ()))
                # While a compacted log is replayed a later owner may have come first.
                if member.process_id in processes:
                    processes.remove(member.process_id)
                if processes:
                    self._processes[key] = tuple(processes)
                else:
                    self._processes.pop(key, None)
