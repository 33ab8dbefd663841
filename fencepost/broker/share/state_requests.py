"""Requests to the share coordinators of other nodes. All questions to one node about one group in the same turn of the
event loop go into one request.

Source: KIP-932; Kafka's PersisterStateManager.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from fencepost.broker.hosting.peers import Peers, PeerUnreachable
from fencepost.broker.kernel.supervision import Place, Policy, describe, end_tasks
from fencepost.broker.share.shard import SharePartitionKey
from fencepost.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteShareStateTopic,
    InitializeShareGroupStateRequest,
    InitializeShareStateTopic,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ReadShareStateTopic,
    WriteShareGroupStateRequest,
    WriteShareStateTopic,
)

STATE_REQUEST = Place("request to the share coordinator of another node", Policy.REPORT)

REQUEST_TIME_OUT_S: Final = 15.0
"""Longer than a process may hang before its parent kills it: the connection breaks then, and another node leads."""


class StateApi(NamedTuple):
    """One of the APIs: its request, the request's part for a topic, and the version that is sent."""

    request: type[Any]
    topic: type[Any]
    version: int


INITIALIZE: Final = StateApi(InitializeShareGroupStateRequest, InitializeShareStateTopic, 0)
READ: Final = StateApi(ReadShareGroupStateRequest, ReadShareStateTopic, 0)
WRITE: Final = StateApi(WriteShareGroupStateRequest, WriteShareStateTopic, 1)
DELETE: Final = StateApi(DeleteShareGroupStateRequest, DeleteShareStateTopic, 0)
SUMMARY: Final = StateApi(ReadShareGroupStateSummaryRequest, ReadShareStateTopic, 1)


class _Batch(NamedTuple):
    """The partitions of a request, by topic id and number. answered: the result of each, by the same."""

    partitions: dict[tuple[bytes, int], Any]
    answered: asyncio.Future[dict[tuple[bytes, int], Any]]


class StateRequests:
    """Sends the requests. Several may be in flight to one node; they arrive in order."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._batches: dict[tuple[StateApi, int, str], _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, api: StateApi, node_id: int, key: SharePartitionKey, partition: Any) -> Any:
        """Return the node's result for a partition. Raises PeerUnreachable, also if the answer does not have it."""
        address, name = (api, node_id, key.group_id), (key.topic_id, key.partition)
        batch = self._batches.get(address)
        if batch is None or name in batch.partitions:
            batch = _Batch({}, asyncio.get_running_loop().create_future())
            self._batches[address] = batch
            self._send_later(address, batch)
        batch.partitions[name] = partition
        results = await asyncio.shield(batch.answered)
        if name not in results:
            raise PeerUnreachable(f"node {node_id} did not answer for partition {key.partition}")
        return results[name]

    async def close(self) -> None:
        """Cancel all requests."""
        await end_tasks(*self._tasks)

    def _send_later(self, address: tuple[StateApi, int, str], batch: _Batch) -> None:
        task = STATE_REQUEST.start(
            self._send(address, batch),
            concerns=f"node {address[1]}",
            on_failure=lambda error: _refuse(batch, describe(error)),
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, address: tuple[StateApi, int, str], batch: _Batch) -> None:
        if self._batches.get(address) is batch:
            del self._batches[address]
        api, node_id, group_id = address
        topics: dict[bytes, list[Any]] = {}
        for (topic_id, _), partition in batch.partitions.items():
            topics.setdefault(topic_id, []).append(partition)
        request = api.request(
            group_id=group_id,
            topics=[api.topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
        )
        try:
            response = await self._peers.request(node_id, request, api.version, REQUEST_TIME_OUT_S)
        except PeerUnreachable as unreachable:
            _refuse(batch, str(unreachable))
            return
        if not batch.answered.done():
            batch.answered.set_result(
                {
                    (topic.topic_id, partition.partition): partition
                    for topic in response.results
                    for partition in topic.partitions
                }
            )


def _refuse(batch: _Batch, reason: str) -> None:
    if not batch.answered.done():
        batch.answered.set_exception(PeerUnreachable(reason))
        batch.answered.exception()  # the callers may have been cancelled
