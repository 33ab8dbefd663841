"""Description of a group of any kind: its members, their partitions, its positions.

Groups of the four kinds are described by four APIs; here they become one form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fencepost.cli.connection import no_such, refusal
from fencepost.cli.sending import send_to_coordinator

if TYPE_CHECKING:
    from fencepost.client.blocking import BlockingCluster

GROUP_ID_NOT_FOUND = 69


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Member:
    """A member. tasks: for a streams group, such as "0_1", or "0_1 (standby)"."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    epoch: int | None = None
    subscription: Sequence[str] = ()
    assignment: Sequence[Place] = ()
    tasks: Sequence[str] = ()


@dataclass(frozen=True)
class Group:
    """A group.

    kind:      classic, consumer, share or streams.
    assignor:  name of the assignor: of a classic group, the protocol that its members have chosen.
    epoch:     None for a classic group.
    positions: a share group's start offset and lag by partition, None if one is not known yet.
    """

    name: str
    kind: str
    state: str
    assignor: str | None = None
    epoch: int | None = None
    members: Sequence[Member] = ()
    positions: Mapping[Place, tuple[int | None, int | None]] = field(default_factory=dict)

    def readers(self) -> dict[Place, list[Member]]:
        """The members that read each partition."""
        readers: dict[Place, list[Member]] = {}
        for member in self.members:
            for place in member.assignment:
                readers.setdefault(place, []).append(member)
        return readers

    @property
    def headline(self) -> str:
        count = len(self.members)
        parts = [f"{self.kind} group, {self.state}", f"{count} member{'s' if count != 1 else ''}"]
        if self.assignor:
            parts.append(f"assigned by {self.assignor}")
        if self.epoch is not None:
            parts.append(f"epoch {self.epoch}")
        return f"{self.name}: {', '.join(parts)}"


def describe_group(admin: Any, cluster: BlockingCluster, name: str) -> Group:
    """Describe a group of any kind. Raises ClickException if it does not exist, or the broker refused.

    admin: a KafkaAdminClient, for the list and for classic groups; cluster: for the other kinds.
    """
    # Only the list has a group's kind; brokers before Kafka 4.0 have classic ones alone.
    kinds = {listed["group_id"]: listed.get("group_type") for listed in admin.list_groups()}
    if name not in kinds:
        _described_classic(admin, name)  # the list lacks groups that a coordinator cannot load
        no_such("group", name, "groups")
    kind = str(kinds[name] or "classic").lower()
    if kind == "classic":
        return _describe_classic(admin, name)
    describe = _DESCRIBERS.get(kind)
    if describe is None:
        raise click.ClickException(f"group {name!r} is a {kind} group, which this command does not know")
    return describe(cluster, name)


def _described_classic(admin: Any, name: str) -> dict[str, Any]:
    described: dict[str, Any] = admin.describe_groups([name])[name]
    error = str(described.get("error") or "")
    if described.get("group_state") == "Dead" or "GROUP_ID_NOT_FOUND" in error or "GroupIdNotFound" in error:
        no_such("group", name, "groups")
    if error:
        raise click.ClickException(f"group {name!r} cannot be read: {error}")
    return described


def _describe_classic(admin: Any, name: str) -> Group:
    described = _described_classic(admin, name)
    return Group(
        name=name,
        kind="classic",
        state=described["group_state"],
        assignor=described.get("protocol_data") or None,
        members=[
            Member(
                member_id=member["member_id"],
                client_id=member["client_id"],
                host=_host(member["client_host"]),
                instance_id=member.get("group_instance_id"),
                subscription=_decoded(member, "member_metadata", "topics"),
                assignment=sorted(
                    Place(topic["topic"], partition)
                    for topic in _decoded(member, "member_assignment", "assigned_partitions")
                    for partition in topic["partitions"]
                ),
            )
            for member in described["members"]
        ],
    )


def _decoded(member: Mapping[str, Any], name: str, key: str) -> Sequence[Any]:
    """Return a field of a format that only members of consumer groups write; empty for all others."""
    content = member.get(name)
    return content.get(key) or [] if isinstance(content, dict) else []


def _describe_consumer(cluster: BlockingCluster, name: str) -> Group:
    from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest

    described = _only(send_to_coordinator(cluster, name, ConsumerGroupDescribeRequest(group_ids=[name])), name)
    return _group(
        described,
        "consumer",
        lambda member: _member(
            member,
            subscription=[
                *member.subscribed_topic_names,
                *([member.subscribed_topic_regex] if member.subscribed_topic_regex else []),
            ],
            assignment=_places(member.assignment.topic_partitions),
        ),
    )


def _describe_share(cluster: BlockingCluster, name: str) -> Group:
    from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest
    from fencepost.protocol.messages.share_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )

    described = _only(send_to_coordinator(cluster, name, ShareGroupDescribeRequest(group_ids=[name])), name)
    wanted = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)]
    )
    offsets = _only(send_to_coordinator(cluster, name, wanted), name)
    return _group(
        described,
        "share",
        lambda member: _member(
            member,
            subscription=member.subscribed_topic_names,
            assignment=_places(member.assignment.topic_partitions),
        ),
        positions={
            Place(topic.topic_name, partition.partition_index): (_known(partition.start_offset), _known(partition.lag))
            for topic in offsets.topics
            for partition in topic.partitions
            if not partition.error_code
        },
    )


def _describe_streams(cluster: BlockingCluster, name: str) -> Group:
    from fencepost.protocol.messages.streams_groups import StreamsGroupDescribeRequest

    described = _only(send_to_coordinator(cluster, name, StreamsGroupDescribeRequest(group_ids=[name])), name)
    sources = {
        subtopology.subtopology_id: [
            *subtopology.source_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
        ]
        for subtopology in (described.topology.subtopologies if described.topology else None) or ()
    }
    return _group(
        described,
        "streams",
        lambda member: _member(
            member,
            subscription=sorted({topic for topics in sources.values() for topic in topics}),
            assignment=sorted(
                Place(topic, partition)
                for tasks in member.assignment.active_tasks
                for topic in sources.get(tasks.subtopology_id, ())
                for partition in tasks.partitions
            ),
            tasks=[
                *_tasks(member.assignment.active_tasks, ""),
                *_tasks(member.assignment.standby_tasks, " (standby)"),
                *_tasks(member.assignment.warmup_tasks, " (warm-up)"),
            ],
        ),
    )


_DESCRIBERS: Mapping[str, Callable[[BlockingCluster, str], Group]] = {
    "consumer": _describe_consumer,
    "share": _describe_share,
    "streams": _describe_streams,
}


def _group(described: Any, kind: str, of_member: Callable[[Any], Member], **details: Any) -> Group:
    """A group whose members the broker assigns to. of_member: describes a member."""
    return Group(
        name=described.group_id,
        kind=kind,
        state=described.group_state,
        assignor=getattr(described, "assignor_name", None) or None,
        epoch=described.group_epoch,
        members=[of_member(member) for member in described.members],
        **details,
    )


def _member(member: Any, **details: Any) -> Member:
    return Member(
        member_id=member.member_id,
        client_id=member.client_id,
        host=_host(member.client_host),
        instance_id=getattr(member, "instance_id", None),
        epoch=member.member_epoch,
        **details,
    )


def _only(reply: Any, name: str) -> Any:
    """The one group of a reply. Raises ClickException with its error."""
    (group,) = reply.groups
    if group.error_code == GROUP_ID_NOT_FOUND:
        no_such("group", name, "groups")
    if group.error_code:
        from kafka.errors import for_code

        raise click.ClickException(refusal(for_code(group.error_code), group.error_message))
    return group


def _places(assigned: Iterable[Any]) -> list[Place]:
    return sorted(Place(topic.topic_name, partition) for topic in assigned for partition in topic.partitions)


def _tasks(assigned: Iterable[Any], suffix: str) -> list[str]:
    return [f"{tasks.subtopology_id}_{partition}{suffix}" for tasks in assigned for partition in tasks.partitions]


def _known(offset: int) -> int | None:
    return offset if offset >= 0 else None


def _host(text: str) -> str:
    """Java's brokers write an address with a slash before it."""
    return text.removeprefix("/")
