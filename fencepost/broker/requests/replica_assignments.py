"""Assignments of replicas that a request names: the refused ones, and the leader.

A partition has one replica for any assignment: the first of the named brokers that takes partitions leads it.
As many may be named as a replication factor may say. Source: Kafka's PartitionAssignment and ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.requests.api import Services

_INCLUDES = "The manual partition assignment includes"


def refused_assignment(services: Services, replicas: Sequence[int]) -> str | None:
    """The reason to refuse to assign a partition to these brokers (INVALID_REPLICA_ASSIGNMENT), or None."""
    choices = services.leader_choices
    known = {services.node_id} if choices is None else {node.node_id for node in choices.nodes()}
    if not replicas:
        return f"{_INCLUDES} an empty replica list."
    for position, replica in enumerate(replicas):
        if replica not in known:
            return f"{_INCLUDES} broker {replica}, but no such broker is registered."
        if replica in replicas[:position]:
            return f"{_INCLUDES} the broker {replica} more than once."
    if len(replicas) > 1:
        reason = services.topics.refused_factor(len(replicas))
        if reason is not None:
            return reason
    if assigned_leader(services, replicas) is not None:
        return None
    if choices is not None and any(node.is_alive for node in choices.nodes() if node.node_id in replicas):
        return f"Broker {replicas[0]} is being drained, and takes no partitions before that has ended."
    return "All brokers specified in the manual partition assignment are fenced or in controlled shutdown."


def refused_assignments(services: Services, replicas_of_partitions: Sequence[Sequence[int]]) -> str | None:
    """The reason to refuse to assign new partitions of a topic, or None: all have equally many replicas."""
    for replicas in replicas_of_partitions:
        reason = refused_assignment(services, replicas)
        if reason is not None:
            return reason
        count, before = len(replicas), len(replicas_of_partitions[0])
        if count != before:
            return (
                f"{_INCLUDES} a partition with {count} replica(s), but this is not consistent with previous "
                f"partitions, which have {before} replica(s)."
            )
    return None


def assigned_leader(services: Services, replicas: Sequence[int]) -> int | None:
    """The first of the brokers that takes partitions now; None if none does."""
    choices = services.leader_choices
    living = {services.node_id} if choices is None else {one.node_id for one in choices.nodes() if one.takes_partitions}
    return next((replica for replica in replicas if replica in living), None)
