"""A change of shared metadata (rights, users, topics, configs, quotas) is answered when it is in force on all nodes.

"All" are the live ones. The node that made the change asks the others, over its connections to them; a node that does
not answer within the lease is dead by then. The question is a WriteTxnMarkers without markers: only nodes may send it,
an older node answers it, too, and no client sees a new API.
"""

from __future__ import annotations

import asyncio
from typing import Final

from fencepost.broker.hosting.peers import Peers, PeerUnreachable
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.metadata.followed_documents import FollowedDocuments
from fencepost.protocol.messages.markers import WriteTxnMarkersRequest

log = get_logger(__name__)

VERSION: Final = 1
RETRY_PAUSE_S: Final = 0.1


class Confirmations:
    """Asks the other nodes for confirmation, and confirms to them.

    bound_s: longest wait for a node; the lease.
    """

    def __init__(self, documents: FollowedDocuments, topics: Topics, peers: Peers, *, bound_s: float) -> None:
        self._documents = documents
        self._topics = topics
        self._peers = peers
        self._bound_s = bound_s

    async def put_in_force(self) -> None:
        """Put the changes that other nodes have written by now in force here: documents without a time limit, topics
        within the time limit of a poll of the store."""
        await asyncio.gather(self._documents.read_again(), self._topics.catch_up())

    async def everywhere(self) -> None:
        """Return when this node's changes are in force on all live nodes, or when the lease of those that do not answer
        is over."""
        nodes = [node.node_id for node in self._topics.placement.other_nodes()]
        if nodes:
            await asyncio.gather(*(self._on_node(node_id) for node_id in nodes))

    async def _on_node(self, node_id: int) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._bound_s
        while True:
            left_s = end_s - loop.time()
            if left_s <= 0:
                log.warning("change_not_confirmed", node_id=node_id, waited_s=self._bound_s)
                return
            try:
                await self._peers.request(node_id, WriteTxnMarkersRequest(markers=[]), VERSION, left_s)
            except PeerUnreachable:
                if all(node.node_id != node_id for node in self._topics.placement.other_nodes()):
                    return  # it reads everything when it starts again
                await asyncio.sleep(min(RETRY_PAUSE_S, max(0.0, end_s - loop.time())))
            else:
                return
