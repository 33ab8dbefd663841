"""Reply to StreamsGroupDescribe, and the endpoints for interactive queries in replies to heartbeats. Pure.

Source: Kafka's StreamsGroup.asDescribedGroup and EndpointToPartitionsManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from fencepost.broker.group.consumer.subscriptions import TopicCatalogue
from fencepost.broker.group.streams.assignor import STICKY_ASSIGNOR
from fencepost.broker.group.streams.group import StreamsGroup, StreamsMember
from fencepost.broker.group.streams.records import key_values
from fencepost.broker.group.streams.tasks import NO_TASKS, OwnedTasks, TaskAssignment, task_ids
from fencepost.broker.group.streams.topology import ConfiguredTopology, StreamsInternalTopic
from fencepost.protocol.messages.streams_groups import (
    StreamsEndpointToPartitions,
    StreamsGroupDescribeAssignment,
    StreamsGroupDescribedGroup,
    StreamsGroupDescribeMember,
    StreamsGroupDescribeSubtopology,
    StreamsGroupDescribeTopology,
    StreamsTopicPartitions,
)
from fencepost.protocol.streams_topology import StreamsEndpoint, StreamsTopicInfo


def described_streams_group(group: StreamsGroup, configured: ConfiguredTopology | None) -> StreamsGroupDescribedGroup:
    """Describe a group. configured: the topology as resolved at the last heartbeat, or None; it is shown when it can
    run, else the topology as members sent it."""
    topology = group.topology
    described = None
    if topology is not None:
        subtopologies = _subtopologies(sorted(topology.subtopologies.items()), _by_name)
        if configured is not None and configured.is_ready:
            subtopologies = _subtopologies(configured.subtopologies.items(), _infos)
        described = StreamsGroupDescribeTopology(topology.epoch, subtopologies)
    return StreamsGroupDescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=described,
        members=[_member(member, group.target.get(name, NO_TASKS)) for name, member in group.members.items()],
        assignor_name=STICKY_ASSIGNOR,
    )


def _subtopologies(
    subtopologies: Iterable[tuple[str, Any]], infos: Callable[[Any], list[StreamsTopicInfo]]
) -> list[StreamsGroupDescribeSubtopology]:
    """Describe subtopologies as sent or as configured. infos: describes the internal topics of one."""
    return [
        StreamsGroupDescribeSubtopology(
            subtopology_id=subtopology_id,
            source_topics=sorted(subtopology.source_topics),
            repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
            state_changelog_topics=infos(subtopology.state_changelog_topics),
            repartition_source_topics=infos(subtopology.repartition_source_topics),
        )
        for subtopology_id, subtopology in subtopologies
    ]


def _infos(topics: Mapping[str, StreamsInternalTopic]) -> list[StreamsTopicInfo]:
    return _by_name(
        StreamsTopicInfo(topic.name, topic.partition_count, topic.replication_factor, key_values(topic.configs))
        for topic in topics.values()
    )


def _by_name(infos: Iterable[StreamsTopicInfo]) -> list[StreamsTopicInfo]:
    return sorted(infos, key=lambda info: info.name)


def _member(member: StreamsMember, target: TaskAssignment) -> StreamsGroupDescribeMember:
    endpoint = member.user_endpoint
    return StreamsGroupDescribeMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else StreamsEndpoint(endpoint.host, endpoint.port),
        client_tags=key_values(member.client_tags),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: OwnedTasks | TaskAssignment) -> StreamsGroupDescribeAssignment:
    return StreamsGroupDescribeAssignment(task_ids(tasks.active), task_ids(tasks.standby), task_ids(tasks.warmup))


# Interactive queries


def partitions_by_endpoint(
    group: StreamsGroup, configured: ConfiguredTopology, topics: TopicCatalogue
) -> list[StreamsEndpointToPartitions]:
    """Return the partitions that each endpoint reads, without topics that do not exist yet."""
    return [
        StreamsEndpointToPartitions(
            user_endpoint=StreamsEndpoint(member.user_endpoint.host, member.user_endpoint.port),
            active_partitions=_topic_partitions(member.assigned.active, configured, topics),
            standby_partitions=_topic_partitions(member.assigned.standby, configured, topics),
        )
        for member in group.members.values()
        if member.user_endpoint is not None
    ]


def _topic_partitions(
    tasks: Mapping[str, Collection[int]], configured: ConfiguredTopology, topics: TopicCatalogue
) -> list[StreamsTopicPartitions]:
    found = []
    for subtopology_id, numbers in sorted(tasks.items()):
        subtopology = configured.subtopologies.get(subtopology_id)
        for name in () if subtopology is None else subtopology.topics_read:
            topic = topics.get(name)
            if topic is not None:
                # A task whose number is beyond a topic's partitions reads the other topics only.
                partitions = [number for number in sorted(numbers) if number < topic.partition_count]
                found.append(StreamsTopicPartitions(name, partitions))
    return found
