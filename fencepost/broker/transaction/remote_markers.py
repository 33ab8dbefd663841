"""Marker channel to other nodes: WriteTxnMarkers, one request per node in flight; each takes all queued markers.

Source: Kafka's TransactionMarkerChannelManager, TxnMarkerQueue and TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping

from fencepost.broker.hosting.peers import Peers, PeerUnreachable, received_error
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.transaction.markers import LocalMarkerChannel, TransactionMarker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = get_logger(__name__)

REMOTE_MARKERS = Place("sending of markers to another node", Policy.RETRY)

WRITE_TXN_MARKERS_VERSION = 2  # the first with the marker's transaction version (KIP-1228)

MarkerErrors = dict[TopicPartition, ErrorCode]


class RemoteMarkerChannel:
    """Delivers markers to the leaders of their partitions: here by a call, elsewhere over the wire.

    A partition without a leader gets NOT_LEADER_OR_FOLLOWER, all partitions of a silent node REQUEST_TIMED_OUT; the
    completion retries these and looks up the leader again. A cancelled marker is not sent, unless its request is in
    flight.
    """

    def __init__(self, topics: Topics, peers: Peers, clock: Clock, *, request_timeout_ms: int) -> None:
        self._topics = topics
        self._placement = topics.placement
        self._local = LocalMarkerChannel(topics, clock)
        self._peers = peers
        self._request_timeout_s = request_timeout_ms / 1000
        self._queues: dict[int, _NodeMarkerQueue] = {}

    def is_deleted(self, topic_partition: TopicPartition) -> bool:
        return self._local.is_deleted(topic_partition)

    def group_by_destination(self, partitions: Collection[TopicPartition]) -> list[frozenset[TopicPartition]]:
        by_node: dict[int | None, set[TopicPartition]] = {}
        for topic_partition in sorted(partitions):
            by_node.setdefault(self._node_id(topic_partition), set()).add(topic_partition)
        return [frozenset(share) for share in by_node.values()]

    async def send(self, marker: TransactionMarker) -> MarkerErrors:
        outcome: MarkerErrors = {}
        local: list[TopicPartition] = []
        remote: dict[int, list[TopicPartition]] = {}
        for topic_partition in sorted(marker.partitions):
            node_id = self._node_id(topic_partition)
            if node_id == HERE:
                local.append(topic_partition)
            elif node_id is None:
                outcome[topic_partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                remote.setdefault(node_id, []).append(topic_partition)
        if local and not remote:
            return outcome | await self._local.send(marker.limited_to(local))
        sends: list[Awaitable[MarkerErrors]] = [
            self._queue(node_id).send(marker.limited_to(share)) for node_id, share in remote.items()
        ]
        if local:
            sends.append(self._local.send(marker.limited_to(local)))
        for sent in await asyncio.gather(*sends):
            outcome |= sent
        return outcome

    async def close(self) -> None:
        """Cancel all requests."""
        await asyncio.gather(*(queue.close() for queue in self._queues.values()))

    def _node_id(self, topic_partition: TopicPartition) -> int | None:
        if self._placement.is_local(topic_partition):
            return HERE
        leader = self._placement.leader(topic_partition)
        return None if leader is None else leader.node_id

    def _queue(self, node_id: int) -> _NodeMarkerQueue:
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = _NodeMarkerQueue(node_id, self._peers, self._request_timeout_s)
        return queue


HERE = -1
"""Placeholder for this node's own id."""


class _QueuedMarkers:
    """A marker queued for one node, and the future of its result."""

    __slots__ = ("answered", "marker")

    def __init__(self, marker: TransactionMarker, answered: asyncio.Future[MarkerErrors]) -> None:
        self.marker = marker
        self.answered = answered

    def answer(self, error_of: Mapping[TopicPartition, ErrorCode], otherwise: ErrorCode) -> None:
        if not self.answered.done():
            self.answered.set_result({name: error_of.get(name, otherwise) for name in self.marker.partitions})


class _NodeMarkerQueue:
    """Queue of markers for one node. Markers that arrive during a request go into the next one."""

    def __init__(self, node_id: int, peers: Peers, request_timeout_s: float) -> None:
        self._node_id = node_id
        self._peers = peers
        self._request_timeout_s = request_timeout_s
        self._queued: dict[_QueuedMarkers, None] = {}
        self._sending: asyncio.Task[None] | None = None

    async def send(self, marker: TransactionMarker) -> MarkerErrors:
        loop = asyncio.get_running_loop()
        queued = _QueuedMarkers(marker, loop.create_future())
        self._queued[queued] = None
        if self._sending is None or self._sending.done():
            self._sending = REMOTE_MARKERS.start(
                self._send_all(), concerns=f"node {self._node_id}", on_failure=lambda _: self._refuse_all()
            )
        try:
            return await queued.answered
        finally:
            self._queued.pop(queued, None)

    async def close(self) -> None:
        await end_tasks(self._sending)

    async def _send_all(self) -> None:
        while self._queued:
            batch = self._take_batch()
            try:
                response = await self._peers.request(
                    self._node_id,
                    WriteTxnMarkersRequest(markers=[_writable(queued.marker) for queued in batch]),
                    WRITE_TXN_MARKERS_VERSION,
                    self._request_timeout_s,
                )
                outcomes = _outcomes(response)
                for queued in batch:
                    # A missing producer id or partition in the response is a fault of the other node.
                    queued.answer(outcomes.get(queued.marker.producer_id, {}), ErrorCode.UNKNOWN_SERVER_ERROR)
            except PeerUnreachable as error:
                log.warning("markers_not_answered", node_id=self._node_id, markers=len(batch), reason=str(error))
                for queued in batch:
                    queued.answer({}, ErrorCode.REQUEST_TIMED_OUT)
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                REMOTE_MARKERS.failed(error, concerns=f"node {self._node_id}")
                for queued in batch:
                    queued.answer({}, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _refuse_all(self) -> None:
        """The sending task has failed: answer every queued marker with an error; its completion sends it again."""
        for queued in list(self._queued):
            queued.answer({}, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _take_batch(self) -> list[_QueuedMarkers]:
        """Take all queued markers; of each producer id only the first, because responses identify markers by it."""
        batch: dict[int, _QueuedMarkers] = {}
        for queued in self._queued:
            batch.setdefault(queued.marker.producer_id, queued)
        for queued in batch.values():
            del self._queued[queued]
        return list(batch.values())


def _writable(marker: TransactionMarker) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.committed,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
            for topic, partitions in by_topic(marker.partitions).items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _outcomes(response: WriteTxnMarkersResponse) -> dict[int, MarkerErrors]:
    return {
        result.producer_id: {
            TopicPartition(topic.name, partition.partition_index): received_error(partition.error_code)
            for topic in result.topics
            for partition in topic.partitions
        }
        for result in response.markers
    }


def by_topic(topic_partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    """Return partition indexes by topic, sorted: requests must not depend on the order of a set."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(topic_partitions):
        topics.setdefault(topic, []).append(partition)
    return topics
