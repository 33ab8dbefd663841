"""A node's part in a cluster: the channel to other nodes, the lease, and the documents that other nodes change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.broker.config import Listener
from fencepost.broker.config.listeners import SecurityProtocol
from fencepost.broker.hosting.membership import Membership
from fencepost.broker.hosting.peers import Connect, Peers, TcpPeers
from fencepost.broker.hosting.placement import NO_PORT, Placement
from fencepost.broker.network.server import BoundListener
from fencepost.broker.node.foundation import Foundation
from fencepost.broker.requests.api import Services

if TYPE_CHECKING:
    from fencepost.broker.metadata.followed_documents import FollowedDocuments
    from fencepost.broker.network.node_sockets import NodeSockets


def open_channel(
    base: Foundation, placement: Placement, connect: Connect | None, listener: Listener | None
) -> TcpPeers:
    """Open the channel to other nodes.

    listener: on which they connect to each other, which the channel is protected as; None: over their node sockets.
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


async def join(
    base: Foundation,
    membership: Membership,
    bound_listeners: Sequence[BoundListener],
    *,
    between_brokers: Listener,
    node_sockets: NodeSockets | None,
) -> None:
    """Take the lease, under which other nodes know the addresses of the listeners. Raises StorageError."""
    advertised_at = ((bound.listener.name, bound.advertised) for bound in bound_listeners)
    endpoints = {name: (address.host, address.port) for name, address in advertised_at}
    between_nodes = between_brokers.name
    if node_sockets is not None:
        between_nodes, path, _ = node_sockets.bound.advertised
        endpoints[between_nodes] = path, NO_PORT
    settings = base.settings
    await membership.join(endpoints, between_nodes=between_nodes, is_drained=lambda: settings.fencepost_drain)
    base.cleanup.push_async_callback(membership.leave)


def follow_documents(base: Foundation, services: Services, peers: Peers | None) -> FollowedDocuments:
    """Make what puts in force what other nodes change, for as long as clients are served."""
    # Imported here: a single node has nobody to follow.
    from fencepost.broker.hosting.confirmations import Confirmations
    from fencepost.broker.metadata.followed_documents import FollowedDocuments

    documents = [
        services.broker_configs.open,
        services.features.open,
        services.client_quotas.open,
        services.scram_credentials.open,
        services.group_configs.open,
    ]
    if services.acls is not None:
        documents.insert(0, services.acls.open)  # first, as rights may have been revoked
    followed = FollowedDocuments(base.store, documents)
    if peers is not None:
        bound_s = base.settings.fencepost_cluster_lease_ms / 1000
        services.confirmations = Confirmations(followed, services.topics, peers, bound_s=bound_s)
    return followed
