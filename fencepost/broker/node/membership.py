"""A node's part in a cluster: the channel to other nodes, the lease, and the documents that other nodes change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.config import Listener, Settings
from fencepost.broker.config.listeners import SecurityProtocol
from fencepost.broker.hosting.membership import Engine, Membership
from fencepost.broker.hosting.peers import Connect, Peers, TcpPeers
from fencepost.broker.hosting.placement import NO_PORT, Placement
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.network.server import BoundListener
from fencepost.broker.node.foundation import Foundation
from fencepost.broker.requests.api import Services

if TYPE_CHECKING:
    from fencepost.broker.metadata.followed_documents import FollowedDocuments
    from fencepost.broker.network.node_sockets import NodeSockets
    from fencepost.broker.requests.near_reads import NearReads


def open_channel(
    base: Foundation, placement: Placement, connect: Connect | None, listener: Listener | None
) -> TcpPeers:
    """Open the channel to other nodes.

    listener: the inter-broker listener, whose protocol the channel uses; None: nodes connect over their node sockets.
    Raises StartError.
    """
    node_id, log_in = base.settings.node_id, None
    if listener is not None and listener.protocol is not SecurityProtocol.PLAINTEXT:
        # Imported here: a broker without TLS and SASL needs none of it.
        from fencepost.broker.network.peer_security import peer_security

        secured, log_in = peer_security(base.settings, listener)
        connect = secured or connect
    peers = TcpPeers(node_id, placement.address, connect=connect, log_in=log_in)
    placement.on_changed.append(lambda _: peers.leave_lost())
    return peers


class Advertised(NamedTuple):
    """The addresses of a node, as other nodes know them while it has its lease: of its listeners, by their names.

    between_nodes: the name of the listener on which nodes connect to each other.
    """

    endpoints: Mapping[str, tuple[str, int]]
    between_nodes: str


def advertised_by(
    bound_listeners: Sequence[BoundListener], between_brokers: Listener, node_sockets: NodeSockets | None
) -> Advertised:
    """Return the addresses of listeners. node_sockets: if given, nodes connect to each other through them."""
    advertised_at = ((bound.listener.name, bound.advertised) for bound in bound_listeners)
    endpoints = {name: (address.host, address.port) for name, address in advertised_at}
    if node_sockets is None:
        return Advertised(endpoints, between_brokers.name)
    name, path, _ = node_sockets.bound.advertised
    return Advertised(endpoints | {name: (path, NO_PORT)}, name)


async def join(base: Foundation, membership: Membership, engine: Engine | None, advertised: Advertised) -> None:
    """Take the lease. Raises StorageError."""
    settings = base.settings
    if engine is not None:
        await engine.begin()
    await membership.join(
        advertised.endpoints,
        between_nodes=advertised.between_nodes,
        is_drained=lambda: settings.fencepost_drain,
    )
    base.cleanup.push_async_callback(membership.leave)


def keep(base: Foundation, membership: Membership, engine: Engine | None, topics: Topics) -> None:
    """Start to take over from lost nodes, and the engine's background work, until the node stops."""
    membership.keep(topics)
    if engine is not None:
        engine.keep()
        base.cleanup.push_async_callback(engine.rest)
    base.cleanup.push_async_callback(membership.rest)


def read_near(settings: Settings, engine: Engine | None, placement: Placement | None) -> NearReads | None:
    """Return the choice of the broker that a consumer reads at; None of a node without a rack, or alone."""
    if engine is None or engine.read_replicas is None or placement is None or settings.broker_rack is None:
        return None
    # Imported here: most nodes have no rack.
    from fencepost.broker.requests.near_reads import NearReads

    return NearReads(settings.node_id, settings.broker_rack, placement, engine.read_replicas)


def follow_documents(base: Foundation, services: Services, peers: Peers | None) -> FollowedDocuments:
    """Return the follower of other nodes' changes, which runs while clients are served."""
    # Imported here: a single node has nobody to follow.
    from fencepost.broker.hosting.confirmations import Confirmations
    from fencepost.broker.metadata.followed_documents import FollowedDocuments

    documents = [
        services.broker_configs.open,
        services.features.open,
        services.client_quotas.open,
        services.scram_credentials.open,
        services.group_configs.open,
        services.client_metrics_configs.open,
    ]
    if services.delegation_tokens is not None:
        documents.append(services.delegation_tokens.open)
    if services.acls is not None:
        documents.insert(0, services.acls.open)  # first, as rights may have been revoked
    followed = FollowedDocuments(base.store, documents)
    if peers is not None:
        bound_s = base.settings.fencepost_cluster_lease_ms / 1000
        services.confirmations = Confirmations(followed, services.topics, peers, bound_s=bound_s)
    return followed
