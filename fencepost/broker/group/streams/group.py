"""Streams group: its members, its topology, and the members' tasks. Pure.

Members are threads of processes. As in a group of the consumer protocol, the group epoch counts changes, the broker
makes a target for it, and members move towards that one by one. Only records change this state, see `records.py`.
Source: KIP-1071; Kafka's StreamsGroup and StreamsGroupMember.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Self

from fencepost.broker.group.modern import JOIN_EPOCH, LEAVE_FOR_A_WHILE_EPOCH, MemberState, ModernGroup
from fencepost.broker.group.streams.tasks import NO_OWNED_TASKS, OwnedTasks, TaskAssignment, TaskId, TaskRole

if TYPE_CHECKING:
    from fencepost.broker.group.streams.topology import ConfiguredTopology, Topology

STREAMS_PROTOCOL_TYPE = "streams"
FIRST_ASSIGNMENT_EPOCH = 1
"""Assignment epoch of a group without an assignment; its members begin with it, and with no tasks."""


class StreamsGroupState(Enum):
    """States of a group. The values are the names in StreamsGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"  # topics are missing, or have wrong partition counts
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberEndpoint(NamedTuple):
    """Address at which a process answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """One member.

    previous_member_epoch: the epoch before; a member whose last reply was lost still sends it.
    topology_epoch:        epoch of the topology that it sent.
    process_id:            members of one process share its disk, which holds a task only once.
    assigned:              tasks that it may run.
    pending_revocation:    tasks that it has to revoke, and may still commit offsets for.
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
        """Return the epoch since which the member is active for the task, also one to revoke; None if it is not."""
        for owned in (self.assigned, self.pending_revocation):
            epoch = owned.active.get(task.subtopology_id, {}).get(task.partition)
            if epoch is not None:
                return epoch
        return None


def absent(member: StreamsMember) -> StreamsMember:
    """Return a static member that has left and will return: it keeps its tasks until its session ends. A member that
    returns under the instance id may commit in any epoch.
    """
    assigned = member.assigned
    active = {subtopology_id: dict.fromkeys(epochs, 0) for subtopology_id, epochs in assigned.active.items()}
    return replace(
        member,
        member_epoch=LEAVE_FOR_A_WHILE_EPOCH,
        assigned=OwnedTasks(active, assigned.standby, assigned.warmup),
        pending_revocation=NO_OWNED_TASKS,
    )


def replaced(member: StreamsMember, member_id: str) -> StreamsMember:
    """Return a static member under the member id of its new process."""
    return replace(member, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)


@dataclass(slots=True)
class GroupMemory:
    """State of a group in memory only: the next coordinator computes it again.

    configured:     a topology, a version of the metadata, and the topology resolved with the topics of that version.
    endpoint_epoch: counts changes of the endpoints and their tasks.
    """

    configured: tuple[Topology, int, ConfiguredTopology] | None = None
    endpoint_epoch: int = 0


class StreamsGroup(ModernGroup[StreamsMember, TaskAssignment]):
    """One group.

    topology:                  the first member's topology; None before.
    validated_topology_epoch:  epoch of the topology whose topics were all valid; -1 for none.
    assignment_configs:        settings of the last target.
    shutdown_member_id:        the member that requested the shutdown of the application; in memory only.
    memory:                    other state in memory only, shared by all copies of a group.
    """

    group_type = "streams"
    protocol_type = STREAMS_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, assignment_epoch=FIRST_ASSIGNMENT_EPOCH)
        self.validated_topology_epoch = 0
        self.assignment_configs: Mapping[str, str] = {}
        self.topology: Topology | None = None
        self.shutdown_member_id: str | None = None
        self.memory = GroupMemory()
        self._static_members: dict[str, str] = {}  # group instance id -> member id
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

    def subscribed_topics(self) -> frozenset[str]:
        """Topics that members read; none in a group without members, so that its offsets may expire."""
        if not self.members or self.topology is None:
            return frozenset()
        return frozenset(self.topology.subtopology_of_source)

    def processes(self, role: TaskRole, task: TaskId) -> tuple[str, ...]:
        """Return the processes that have a task in this role or have not confirmed its revocation."""
        return self._processes.get((role, task), ())

    def static_member(self, instance_id: str) -> StreamsMember | None:
        member_id = self._static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    # Changes

    def copy(self) -> Self:
        other = super().copy()
        other._static_members = dict(self._static_members)  # noqa: SLF001
        other._processes = dict(self._processes)  # noqa: SLF001
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
        if member.instance_id is not None:
            self._static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
            if member.instance_id is not None and self._static_members.get(member.instance_id) == member_id:
                del self._static_members[member.instance_id]
        if not self.members:
            self.shutdown_member_id = None

    def _release(self, member: StreamsMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for key in owned.tasks():
                processes = list(self._processes.get(key, ()))
                # In the replay of a compacted log a later owner may come first.
                if member.process_id in processes:
                    processes.remove(member.process_id)
                if processes:
                    self._processes[key] = tuple(processes)
                else:
                    self._processes.pop(key, None)
