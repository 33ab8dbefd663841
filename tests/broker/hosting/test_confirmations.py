"""How long a node waits until others have in force what it has changed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from fencepost.broker.hosting.confirmations import Confirmations
from fencepost.broker.hosting.peers import PeerUnreachable
from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.kernel.events import events_to
from fencepost.broker.metadata.followed_documents import FollowedDocuments
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.protocol.messages.markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


@dataclass
class Cluster:
    """The other nodes, as one sees them; `answers` holds what each does in turn."""

    alive: set[int]
    answers: dict[int, list[Exception | None]]
    asked: list[int] = field(default_factory=list)
    on_asked: Any = None

    @property
    def placement(self) -> Cluster:
        return self

    def other_nodes(self) -> list[NodeAddress]:
        return [NodeAddress(node_id, "localhost", 9092) for node_id in sorted(self.alive)]

    async def request(self, node_id: int, message: Any, version: int, timeout_s: float) -> Any:
        assert isinstance(message, WriteTxnMarkersRequest)
        assert not message.markers
        self.asked.append(node_id)
        if self.on_asked is not None:
            self.on_asked(node_id)
        answer = self.answers[node_id].pop(0) if self.answers[node_id] else PeerUnreachable("it is away")
        if answer is not None:
            await asyncio.sleep(0)
            raise answer
        return WriteTxnMarkersResponse(markers=[])

    def confirmations(self, bound_s: float) -> Confirmations:
        followed = FollowedDocuments(InMemoryMetadataStore(), [])
        return Confirmations(followed, cast("Any", self), cast("Any", self), bound_s=bound_s)


async def test_each_living_node_is_asked_once() -> None:
    cluster = Cluster({1, 2}, {1: [None], 2: [None]})
    await cluster.confirmations(30).everywhere()
    assert cluster.asked == [1, 2]


async def test_a_node_whose_connection_was_lost_is_asked_again() -> None:
    cluster = Cluster({1}, {1: [PeerUnreachable("lost"), PeerUnreachable("lost"), None]})
    await cluster.confirmations(30).everywhere()
    assert cluster.asked == [1, 1, 1]


async def test_a_node_that_dies_meanwhile_is_not_waited_for() -> None:
    cluster = Cluster({1}, {1: []})
    cluster.on_asked = cluster.alive.discard
    await cluster.confirmations(30).everywhere()
    assert cluster.asked == [1]


async def test_a_node_that_does_not_answer_is_waited_for_as_long_as_its_lease() -> None:
    cluster = Cluster({1, 2}, {1: [], 2: [None]})
    lines: list[tuple[Any, ...]] = []
    with events_to(lambda *event: lines.append(event)):
        await cluster.confirmations(0.3).everywhere()
    assert set(cluster.asked) == {1, 2}
    assert "change_not_confirmed" in str(lines)


@pytest.mark.parametrize("is_busy", [False, True])
async def test_documents_are_read_after_they_were_asked_for(is_busy: bool) -> None:
    begun: list[int] = []
    gate = asyncio.Event()

    async def reopen() -> None:
        begun.append(len(begun))
        if is_busy and len(begun) == 1:
            await gate.wait()

    followed = FollowedDocuments(InMemoryMetadataStore(), [reopen])
    followed.start()
    await asyncio.sleep(0)
    reading = asyncio.create_task(followed.read_again())
    await asyncio.sleep(0)
    gate.set()
    await reading
    assert len(begun) == 2
    await followed.close()
    await followed.read_again()
    assert len(begun) == 2
