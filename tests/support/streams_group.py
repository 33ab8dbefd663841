"""Members of a streams group on a shard with a log in memory, as Kafka Streams behaves."""

from __future__ import annotations

from typing import Any

from fencepost.broker.group.decision_builder import GroupConfig, StreamsTimes
from fencepost.broker.group.modern import HeartbeatContext
from fencepost.broker.group.streams.group import StreamsGroup
from fencepost.broker.group.streams.membership import StreamsHeartbeat
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatTopology,
)
from fencepost.protocol.streams_topology import (
    StreamsCopartitionGroup,
    StreamsEndpoint,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
)
from tests.support.consumer_group import image, topic_id
from tests.support.group_shard import ShardHarness

SENDER = HeartbeatContext("client", "/127.0.0.1", "")
REBALANCE_TIMEOUT_MS = 60_000
REPARTITION, CHANGELOG = "g-counts-repartition", "g-counts-changelog"
EAGER = StreamsTimes(assignment_interval_ms=0, initial_rebalance_delay_ms=0)

Tasks = dict[str, list[int]]


def counting(source: str = "words", epoch: int = 0) -> StreamsGroupHeartbeatTopology:
    """Subtopology 0 sends what it reads on to subtopology 1, which counts."""
    return StreamsGroupHeartbeatTopology(
        epoch,
        [
            StreamsSubtopology("0", source_topics=[source], repartition_sink_topics=[REPARTITION]),
            StreamsSubtopology(
                "1",
                state_changelog_topics=[
                    StreamsTopicInfo(CHANGELOG, topic_configs=[StreamsKeyValue("cleanup.policy", "compact")])
                ],
                repartition_source_topics=[StreamsTopicInfo(REPARTITION)],
                copartition_groups=[StreamsCopartitionGroup(repartition_source_topics=[0])],
            ),
        ],
    )


def config(times: StreamsTimes = EAGER, **settings: Any) -> GroupConfig:
    return GroupConfig(initial_rebalance_delay_ms=0, streams_times=lambda _: times, **settings)


class StreamsWorld(ShardHarness):
    """A shard that assigns at every change, unless the configuration says otherwise; topics by their partitions."""

    def __init__(self, *, config_of_groups: GroupConfig | None = None, **partition_counts: int) -> None:
        super().__init__(config_of_groups or config(), topics=image(**(partition_counts or {"words": 2})))

    def create(self, name: str, partition_count: int) -> None:
        self.topics.put(TopicMetadata(name, topic_id(name), partition_count))

    def create_wanted(self, heartbeat: StreamsHeartbeat) -> None:
        """What the broker does once an answer is durable."""
        for topic in heartbeat.to_create.values():
            self.create(topic.name, topic.partition_count)

    def send(self, **fields: Any) -> StreamsHeartbeat:
        request = StreamsGroupHeartbeatRequest(**{"group_id": "g", "endpoint_information_epoch": -1, **fields})
        heartbeat: StreamsHeartbeat = self.run(self.shard.streams.heartbeat(request, SENDER, self.now_ms))
        return heartbeat

    def member(self, name: str, **options: Any) -> ModelMember:
        return ModelMember(self, name, **options)

    @property
    def streams_group(self) -> StreamsGroup:
        group = self.shard._groups["g"]
        assert isinstance(group, StreamsGroup)
        return group

    def crash(self) -> None:
        """Go on with a shard that is loaded from the log."""
        self.shard = self.replayed().shard

    def settle(self, *members: ModelMember, rounds: int = 12) -> None:
        for _ in range(rounds):
            for member in members:
                member.beat()

    def check_invariants(self) -> None:
        """No task is two members' to process, and no process has a task twice."""
        active: set[tuple[str, int]] = set()
        on_process: set[tuple[str, str, int]] = set()
        for member in self.streams_group.members.values():
            for owned in (member.assigned, member.pending_revocation):
                for role, task in owned.tasks():
                    if role.value == "active":
                        assert task not in active
                        active.add(task)
                    assert (member.process_id, *task) not in on_process
                    on_process.add((member.process_id, *task))


class ModelMember:
    """A thread of a process: it gives up at once what it no longer has to run, and says so with the next heartbeat."""

    def __init__(self, world: StreamsWorld, name: str, *, process: str | None = None, port: int | None = None) -> None:
        self.world = world
        self.name = name
        self.process = process or f"process-{name}"
        self.endpoint = None if port is None else StreamsEndpoint("localhost", port)
        self.epoch = 0
        self.active: Tasks = {}
        self.standby: Tasks = {}
        self.has_changed = False
        self.endpoint_epoch = -1
        self.last: StreamsGroupHeartbeatResponse = StreamsGroupHeartbeatResponse()

    def join(self, topology: StreamsGroupHeartbeatTopology | None = None, **fields: Any) -> StreamsHeartbeat:
        self.active, self.standby = {}, {}
        return self._send(
            member_epoch=0,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            topology=topology or counting(),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id=self.process,
            user_endpoint=self.endpoint,
            client_tags=[StreamsKeyValue("zone", "a")],
            **fields,
        )

    def beat(self, *, epoch: int | None = None, **fields: Any) -> StreamsHeartbeat:
        if self.has_changed:
            fields = {
                "active_tasks": [StreamsTaskIds(*entry) for entry in self.active.items()],
                "standby_tasks": [StreamsTaskIds(*entry) for entry in self.standby.items()],
                "warmup_tasks": [],
                **fields,
            }
        return self._send(member_epoch=self.epoch if epoch is None else epoch, **fields)

    def leave(self, **fields: Any) -> StreamsHeartbeat:
        return self._send(member_epoch=-1, **fields)

    def _send(self, **fields: Any) -> StreamsHeartbeat:
        heartbeat = self.world.send(
            member_id=self.name, **{"endpoint_information_epoch": self.endpoint_epoch, **fields}
        )
        self.last = response = heartbeat.response
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            self.endpoint_epoch = response.endpoint_information_epoch
            self.has_changed = response.active_tasks is not None
            if response.active_tasks is not None:
                self.active = _tasks(response.active_tasks)
                self.standby = _tasks(response.standby_tasks)
            self.world.create_wanted(heartbeat)
        return heartbeat

    @property
    def statuses(self) -> list[int]:
        return [status.status_code for status in self.last.status or []]


def _tasks(entries: list[StreamsTaskIds] | None) -> Tasks:
    return {entry.subtopology_id: list(entry.partitions) for entry in entries or []}
