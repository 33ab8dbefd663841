"""Leaders that refusals name, for a partition that this node does not lead, or leads in another epoch.

Source: KIP-951; Kafka's KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from fencepost.broker.requests.api import Services
from fencepost.broker.requests.partition_lookup import leadership
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.leaders import LeaderIdAndEpoch, NodeEndpoint

if TYPE_CHECKING:
    from fencepost.broker.requests.fetch_sessions import FetchedPartition
    from fencepost.protocol.messages.fetch import PartitionData

REFUSED_FOR_ITS_LEADER: Final[Collection[int]] = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}
)
"""The errors of a client whose leader or leader epoch is outdated."""


def current_leader(services: Services, topic: str, partition: int) -> LeaderIdAndEpoch:
    """The leader of a partition and its epoch, as Metadata names them; -1 and -1 while no leader is known."""
    found = leadership(services, topic, partition)
    return LeaderIdAndEpoch(found.leader_id, found.leader_epoch)


def nodes_alive(services: Services) -> list[NodeEndpoint]:
    """The nodes that are alive, this one first, with the addresses for clients of the listener that was asked."""
    listener = services.listener
    others = (each.at(listener.name) for each in services.topics.placement.other_nodes())
    here = NodeEndpoint(services.node_id, listener.host, listener.port, services.settings.broker_rack)
    return [here, *(NodeEndpoint(node.node_id, node.host, node.port, node.rack) for node in others)]


def endpoints_of(services: Services, node_ids: Collection[int]) -> list[NodeEndpoint]:
    """The addresses of those nodes that are alive."""
    return [node for node in nodes_alive(services) if node.node_id in node_ids] if node_ids else []


def name_leaders(services: Services, answered: Sequence[tuple[FetchedPartition, PartitionData]]) -> set[int]:
    """Name the leaders of partitions that the client should fetch elsewhere, or in another leader epoch. Return their
    ids.

    Source: KIP-951; Kafka's KafkaApis.handleFetchRequest.
    """
    leaders = set()
    for wanted, answer in answered:
        if answer.error_code in REFUSED_FOR_ITS_LEADER:
            answer.current_leader = current_leader(services, wanted.topic, wanted.partition)
            leaders.add(answer.current_leader.leader_id)
    return leaders
