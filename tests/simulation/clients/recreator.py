"""An application that deletes its topic and creates it again under its name, and writes, reads and commits meanwhile.

Each value that it sends, and each offset that it commits, belongs to a topic id that it has seen before: `Recreations`
has them all. So the end shows what was lost, and what an earlier topic has left behind.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from fencepost.protocol.record_batch import iterate_batches, read_records
from tests.simulation.client import Disconnected
from tests.simulation.clients.actor import Life
from tests.simulation.clients.applications import Play
from tests.simulation.clients.cluster import GROUP, METADATA_VERSION, Cluster
from tests.simulation.clients.tenant import (
    FETCH_VERSION,
    OFFSET_COMMIT_VERSION,
    PRODUCE_VERSION,
    commit_request,
    fetch_request,
    produce_request,
)
from tests.simulation.situations import A_TOPIC_IS_CREATED_AGAIN, SOMETHING_IS_ACKNOWLEDGED_BY_A_TOPIC_CREATED_AGAIN

AGAIN: Final = "again"
PARTITION: Final = TopicPartition(AGAIN, 0)
CREATE_VERSION: Final = 7
DELETE_VERSION: Final = 6
OFFSET_FETCH_VERSION: Final = 8


@dataclass
class Sent:
    """A value, or a committed offset, that was sent to the topic with this id.

    acknowledged_s: when; never, unless that is known. offset: of the record.
    """

    topic_id: bytes
    acknowledged_s: float = math.inf
    offset: int = -1


@dataclass
class Deletion:
    """A deletion that was acknowledged. sent_s, answered_s: the request, and the answer."""

    sent_s: float
    answered_s: float


@dataclass
class Recreations:
    """What all lives of the application have sent and seen.

    values: by their text. commits: by group and offset; no offset is committed twice.
    deletions: by topic id. seen: topic ids. findings: what must not be.
    """

    values: dict[str, Sent] = field(default_factory=dict)
    commits: dict[tuple[str, int], Sent] = field(default_factory=dict)
    deletions: dict[bytes, Deletion] = field(default_factory=dict)
    seen: set[bytes] = field(default_factory=set)
    findings: list[tuple[str, object]] = field(default_factory=list)

    def is_left_behind(self, sent: Sent, topic_id: bytes, asked_s: float = math.inf) -> bool:
        """Whether an answer of the topic with this id, to a question asked then, may not have this: an earlier topic
        has acknowledged it, and was deleted after that."""
        deletion = self.deletions.get(sent.topic_id)
        return (
            sent.topic_id != topic_id
            and deletion is not None
            and sent.acknowledged_s <= deletion.sent_s
            and deletion.answered_s <= asked_s
        )


def recreator(*, asks_strictly: bool) -> Play:
    """asks_strictly: whether a broker knows at once of each topic that is created or deleted, as one alone does."""

    async def play(life: Life) -> None:
        recreator = _Recreator(life, asks_strictly=asks_strictly)
        while life.goes_on():
            try:
                await recreator.work()
            except Disconnected:
                await recreator.cluster.back_off()
            await life.think(0.0, 0.2)
        recreator.cluster.close()

    return play


def look_back() -> Play:
    """Look at what is there in the end, once all lives of the application are over."""

    async def play(life: Life) -> None:
        recreator = _Recreator(life, asks_strictly=True)
        while not await recreator.look_back():
            await recreator.cluster.back_off()
        recreator.cluster.close()

    return play


class _Recreator:
    def __init__(self, life: Life, *, asks_strictly: bool) -> None:
        self.cluster: Cluster = life.cluster()
        self._life = life
        self._asks_strictly = asks_strictly
        self._all: Recreations = life.stage.world.recreations
        self._group_id = f"{AGAIN}-{life.name}"
        self._committed = 0

    @property
    def _now_s(self) -> float:
        return self._life.stage.world.loop.time()

    async def work(self) -> None:
        """Raises Disconnected."""
        found = await self._find()
        if found is None:
            await self._create()
            return
        topic_id, leader = found
        chance = self._life.chance
        if chance.random() < 0.2 and await self._delete(topic_id):
            created = await self._create()
            found = None if created is None else await self._find()
            if found is None:
                return
            topic_id, leader = found
            # What is sent at once meets brokers that have not heard of it.
            self._life.reached(A_TOPIC_IS_CREATED_AGAIN)
        if leader is None:
            return
        work = [self._send(topic_id, leader) for _ in range(chance.randint(1, 3))]
        if chance.random() < 0.5:
            work.append(self._commit(topic_id))
        if chance.random() < 0.4:
            work.append(self._fetch(topic_id, leader))
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _find(self) -> tuple[bytes, NodeAddress | None] | None:
        """The topic's id and its leader; None where there is none. Raises Disconnected."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=AGAIN)], allow_auto_topic_creation=False)
        response = await self.cluster.send(self.cluster.any_node(), request, METADATA_VERSION)
        nodes = {node.node_id: NodeAddress(node.node_id, node.host, node.port) for node in response.brokers}
        described = response.topics[0]
        if described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if described.error_code or not described.partitions:
            raise Disconnected(f"{AGAIN}: {described.error_code}")
        topic_id: bytes = described.topic_id
        if topic_id in self._all.deletions:
            return None  # a broker that has not heard of it
        self._all.seen.add(topic_id)
        return topic_id, nodes.get(described.partitions[0].leader_id)

    async def _create(self) -> bytes | None:
        """Raises Disconnected."""
        topic = CreatableTopic(name=AGAIN, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=2_000)
        response = await self.cluster.send(self.cluster.any_node(), request, CREATE_VERSION)
        topic_id: bytes = response.topics[0].topic_id
        return None if response.topics[0].error_code else topic_id

    async def _delete(self, topic_id: bytes) -> bool:
        """Raises Disconnected."""
        sent_s = self._now_s
        request = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic_id)], timeout_ms=2_000)
        response = await self.cluster.send(self.cluster.any_node(), request, DELETE_VERSION)
        if response.responses[0].error_code:
            return False
        self._all.deletions.setdefault(topic_id, Deletion(sent_s, self._now_s))
        return True

    async def _send(self, topic_id: bytes, leader: NodeAddress) -> None:
        """Raises Disconnected."""
        value = f"{topic_id.hex()[-6:]}:{self._life.new_value()}"
        sent = self._all.values[value] = Sent(topic_id)
        response = await self.cluster.send(leader, produce_request(AGAIN, value, self._life.now_ms()), PRODUCE_VERSION)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code == ErrorCode.NONE:
            sent.acknowledged_s, sent.offset = self._now_s, answer.base_offset
            if len(self._all.seen) > 1:
                self._life.reached(SOMETHING_IS_ACKNOWLEDGED_BY_A_TOPIC_CREATED_AGAIN)

    async def _commit(self, topic_id: bytes) -> None:
        """Raises Disconnected."""
        self._committed += 1
        sent = self._all.commits[self._group_id, self._committed] = Sent(topic_id)
        request = commit_request(self._group_id, AGAIN, self._committed, topic_id.hex())
        response = await self.cluster.ask_coordinator(GROUP, self._group_id, request, OFFSET_COMMIT_VERSION)
        error = response.topics[0].partitions[0].error_code
        if error == ErrorCode.NONE:
            sent.acknowledged_s = self._now_s
        elif error == ErrorCode.NOT_COORDINATOR:
            self.cluster.forget_coordinator(GROUP, self._group_id)

    async def _fetch(self, topic_id: bytes, leader: NodeAddress) -> None:
        """Raises Disconnected."""
        asked_s = self._now_s
        response = await self.cluster.send(leader, fetch_request(AGAIN), FETCH_VERSION, channel="fetch")
        if self._asks_strictly:
            self._look_at(topic_id, _values(response), asked_s)

    def _look_at(self, topic_id: bytes, values: Iterable[str], asked_s: float) -> None:
        for value in values:
            if self._all.is_left_behind(self._all.values[value], topic_id, asked_s):
                self._all.findings.append(("a record of a deleted topic is served", value))

    # In the end

    async def look_back(self) -> bool:
        """Look at the topic and the offsets that are there; whether that was possible."""
        try:
            found = await self._find()
            if found is None:
                return True
            topic_id, leader = found
            if leader is None:
                return False
            values = await self._read_all(leader)
            if values is None:
                return False
            committed = {group: await self._committed_by(group) for group in {group for group, _ in self._all.commits}}
        except Disconnected:
            return False
        if any(offset is None for offset in committed.values()):
            return False
        for value, sent in self._all.values.items():
            if sent.topic_id == topic_id and sent.offset >= 0 and values.get(sent.offset) != value:
                self._all.findings.append(("an acknowledged record is not there", (value, sent)))
        self._look_at(topic_id, values.values(), self._now_s)
        for group, offset in committed.items():
            assert offset is not None
            self._look_at_commits(topic_id, group, offset)
        return True

    def _look_at_commits(self, topic_id: bytes, group_id: str, offset: int) -> None:
        acknowledged = [
            number
            for (group, number), sent in self._all.commits.items()
            if group == group_id and sent.topic_id == topic_id and sent.acknowledged_s < math.inf
        ]
        if offset < max(acknowledged, default=-1):
            self._all.findings.append(("an acknowledged offset is not there", (group_id, offset, acknowledged)))
        found = self._all.commits.get((group_id, offset))
        if found is not None and self._all.is_left_behind(found, topic_id):
            self._all.findings.append(("an offset of a deleted topic is served", (group_id, offset, found)))

    async def _read_all(self, leader: NodeAddress) -> dict[int, str] | None:
        """All values by offset; None if there is an error, or if a segment has yet to come from the engine.

        Raises Disconnected.
        """
        values: dict[int, str] = {}
        while True:
            position = max(values, default=-1) + 1
            response = await self.cluster.send(leader, fetch_request(AGAIN, position), FETCH_VERSION)
            (data,) = response.responses[0].partitions
            if data.error_code:
                return None
            read = dict(_records(response))
            if not read:
                return values if position >= data.high_watermark else None
            values |= read

    async def _committed_by(self, group_id: str) -> int | None:
        """The offset that a group has committed, -1 without one; None if there is an error. Raises Disconnected."""
        topics = [OffsetFetchRequestTopics(name=AGAIN, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])
        response = await self.cluster.ask_coordinator(GROUP, group_id, request, OFFSET_FETCH_VERSION)
        group = response.groups[0]
        if group.error_code or group.topics[0].partitions[0].error_code:
            self.cluster.forget_coordinator(GROUP, group_id)
            return None
        offset: int = group.topics[0].partitions[0].committed_offset
        return offset


def _records(response: Any) -> Iterator[tuple[int, str]]:
    for topic in response.responses:
        for data in topic.partitions:
            for batch in iterate_batches(data.records or b""):
                for record in read_records(batch):
                    yield record.offset, (record.value or b"").decode()


def _values(response: Any) -> Iterator[str]:
    return (value for _, value in _records(response))
