"""A node whose share coordinator is on another node, which answers when a test says so."""

from __future__ import annotations

from pathlib import Path

from fencepost.broker.config import Settings
from fencepost.broker.hosting.placement import NodeAddress, PlacementTable
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.topic_partition import SHARE_GROUP_STATE_TOPIC, TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.share.coordinator import ShareCoordinator
from fencepost.broker.share.remote_persister import RemoteSharePersister
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.broker.share.shard import SharePartitionKey
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_state import (
    ShareStatePartitionResult,
    ShareStateTopicResult,
    WriteShareGroupStateResponse,
)
from fencepost.protocol.stored.share_group_state import StateBatch
from tests.broker.supervision.planting import until
from tests.support.fake_peers import FakePeers, SentRequest
from tests.support.share_broker import ManualClock

HERE, OTHER, THIRD = 1, 2, 3
STATE = TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)
TOPIC_ID = b"t" * 16
AT = TopicIdPartition(TOPIC_ID, 0)
KEY = SharePartitionKey("g", *AT)
NEXT_KEY = SharePartitionKey("g", TOPIC_ID, 1)
ACKNOWLEDGED = 2


class RemoteState:
    """A node whose share coordinator is node 2. lost: what `on_lost` was called with."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        settings = Settings(log_dirs=str(directory), share_coordinator_state_topic_num_partitions=1)
        self.table = PlacementTable(lambda _: OTHER)
        for node_id in (HERE, OTHER, THIRD):
            self.table.register(NodeAddress(node_id, "127.0.0.1", 9000 + node_id))
        self.disk = LocalDisk()
        self.logs = LogDirectory(str(directory), disk=self.disk, clock=self.clock)
        self.topics = Topics(InMemoryMetadataStore("cluster"), self.logs, settings, placement=self.table.view(HERE))
        self.coordinator = ShareCoordinator(self.topics, settings, self.clock)
        self.peers = FakePeers()
        self.persister = RemoteSharePersister(self.coordinator, self.topics, self.peers, self.clock)
        self.lost: list[SharePartitionKey] = []
        self.persister.on_lost.append(self.lost.append)

    def write(self, offset: int, *, state: int = ACKNOWLEDGED, key: SharePartitionKey = KEY, epoch: int = 1) -> None:
        error = self.persister.write(
            key,
            state_epoch=epoch,
            leader_epoch=0,
            start_offset=0,
            delivery_complete_count=offset + 1,
            state_batches=[StateBatch(offset, offset, state, 1)],
        )
        assert error is ErrorCode.NONE

    async def sent(self, count: int = 1) -> SentRequest:
        """The newest request, once there are `count`."""
        await until(lambda: len(self.peers.sent) >= count)
        assert len(self.peers.sent) == count
        return self.peers.sent[-1]

    async def open(self) -> None:
        await self.topics.open()
        self.coordinator.start()
        await self.topics.ensure_internal(SHARE_GROUP_STATE_TOPIC)

    async def close(self) -> None:
        await self.persister.close()
        await self.coordinator.close()
        await self.topics.close()
        await self.logs.close()
        self.disk.close()


def written(error: ErrorCode = ErrorCode.NONE, *numbers: int) -> WriteShareGroupStateResponse:
    partitions = [ShareStatePartitionResult(number, error) for number in numbers or (0,)]
    return WriteShareGroupStateResponse([ShareStateTopicResult(TOPIC_ID, partitions)])
