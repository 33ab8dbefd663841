"""A cluster as one broker describes it: brokers, topics, leaders; and the requests that ask for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from fencepost.client.errors import ClusterError, check
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.primitives import ZERO_UUID


class CoordinatorKind(IntEnum):
    """Kind of a coordinator, with its number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True)
class Node:
    """Address of a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True)
class Partition:
    """A partition of a topic. leader: -1 for none; error: Kafka's code, 0 for none."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error: int


@dataclass(frozen=True)
class Topic:
    """A topic with its partitions in order. topic_id: zeros before Kafka 2.8."""

    name: str
    is_internal: bool
    partitions: tuple[Partition, ...]
    error: int = 0
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True)
class ClusterView:
    """The brokers and topics, as one broker knew them at one time."""

    cluster_id: str
    controller: int
    nodes: Mapping[int, Node]
    topics: Mapping[str, Topic] = field(default_factory=dict)


def metadata_request(names: Iterable[str] | None) -> MetadataRequest:
    """Ask for these topics, all of them for None. Creates none."""
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def view_of(reply: Any) -> ClusterView:
    nodes = {node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in reply.brokers}
    found = {topic.name: _topic(topic) for topic in reply.topics if topic.name is not None}
    return ClusterView(reply.cluster_id or "", reply.controller_id, nodes, dict(sorted(found.items())))


def coordinator_request(kind: CoordinatorKind, *keys: str) -> FindCoordinatorRequest:
    """Ask for the coordinators of keys: before version 4, of Kafka 3.0, of the first alone."""
    return FindCoordinatorRequest(key=keys[0], key_type=kind, coordinator_keys=list(keys))


def coordinators_of(reply: Any, keys: Sequence[str]) -> dict[str, Node]:
    """The brokers in a reply to `coordinator_request`, at least one. Raises RefusedError."""
    found = {}
    for one in reply.coordinators or [reply]:
        check(one.error_code, one.error_message)
        key = one.key if reply.coordinators else keys[0]
        if key in keys:
            found[key] = Node(one.node_id, one.host, one.port)
    if not found:
        raise ClusterError("a broker answered for other coordinators than it was asked for")
    return found


def _topic(topic: Any) -> Topic:
    partitions = (
        Partition(
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            one.error_code,
        )
        for one in topic.partitions
    )
    ordered = tuple(sorted(partitions, key=lambda one: one.index))
    return Topic(topic.name, topic.is_internal, ordered, topic.error_code, bytes(topic.topic_id))
