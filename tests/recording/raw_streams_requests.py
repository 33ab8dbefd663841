"""The APIs of streams groups, sent raw: what is asked in good order, and what is not."""

from __future__ import annotations

import itertools
import time
import uuid
from typing import Any

from kafka.protocol import admin

from fencepost.protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatTopology,
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from fencepost.protocol.streams_topology import (
    StreamsCopartitionGroup,
    StreamsEndpoint,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
)
from tests.recording.raw_session import ATTEMPTS, Session

GROUP_RESOURCE = 32
SET = 0
JOIN, LEAVE = 0, -1
REBALANCE_TIMEOUT_MS = 30_000
RETRYABLE = {14, 15, 16}

_group_numbers = itertools.count()


class Member:
    """The member of its own streams group, whose application repartitions the session's topic and counts."""

    def __init__(self, session: Session, version: int, group_id: str | None = None) -> None:
        self.session = session
        self.version = version
        self.group_id = group_id or f"frames-streams-{next(_group_numbers)}"
        self.member_id = str(uuid.uuid4())
        self.process_id = str(uuid.uuid4())
        self.epoch = JOIN
        self.active: list[StreamsTaskIds] = []
        configs = [
            {"name": "streams.initial.rebalance.delay.ms", "config_operation": SET, "value": "0"},
            {"name": "streams.num.standby.replicas", "config_operation": SET, "value": "1"},
        ]
        resources = [{"resource_type": GROUP_RESOURCE, "resource_name": self.group_id, "configs": configs}]
        session.send(admin.IncrementalAlterConfigsRequest, 1, resources=resources, validate_only=False)

    def topology(self, source: str | None = None, epoch: int = 0) -> StreamsGroupHeartbeatTopology:
        counts = f"{self.group_id}-counts"
        compact = [StreamsKeyValue("cleanup.policy", "compact")]
        return StreamsGroupHeartbeatTopology(
            epoch=epoch,
            subtopologies=[
                StreamsSubtopology(
                    subtopology_id="0",
                    source_topics=[source or self.session.topic],
                    repartition_sink_topics=[f"{counts}-repartition"],
                ),
                StreamsSubtopology(
                    subtopology_id="1",
                    state_changelog_topics=[StreamsTopicInfo(f"{counts}-changelog", topic_configs=compact)],
                    repartition_source_topics=[StreamsTopicInfo(f"{counts}-repartition")],
                    copartition_groups=[StreamsCopartitionGroup(repartition_source_topics=[0])],
                ),
            ],
        )

    def heartbeat(self, epoch: int, **fields: Any) -> Any:
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, **fields
        )
        for _ in range(ATTEMPTS):
            response = self.session.send_own(request, self.version)
            if response.error_code not in RETRYABLE:
                break
            time.sleep(0.05)
        if response.error_code == 0:
            self.epoch = max(response.member_epoch, JOIN)
            if response.active_tasks is not None:
                self.active = response.active_tasks
        return response

    def join(self, topology: StreamsGroupHeartbeatTopology | None = None, *, has_endpoint: bool = True) -> Any:
        return self.heartbeat(
            JOIN,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            topology=topology or self.topology(),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id=self.process_id,
            user_endpoint=StreamsEndpoint("localhost", 8080) if has_endpoint else None,
            client_tags=[StreamsKeyValue("zone", "a")],
        )

    def join_and_settle(self) -> None:
        """Returns once the member has been given tasks: the internal topics are made first."""
        self.join()
        for _ in range(ATTEMPTS):
            if self.active:
                self.heartbeat(self.epoch, active_tasks=self.active, standby_tasks=[], warmup_tasks=[])
                return
            time.sleep(0.1)
            self.heartbeat(self.epoch)
        raise RuntimeError("a streams group's member was given no tasks")

    def leave(self) -> Any:
        return self.heartbeat(LEAVE)


def streams_group_heartbeat(session: Session, version: int) -> None:
    member = Member(session, version)
    member.join_and_settle()
    member.heartbeat(member.epoch + 7)
    foreign = [StreamsTaskIds("9", [0])]
    member.heartbeat(member.epoch, active_tasks=foreign, standby_tasks=[], warmup_tasks=[])
    member.join(member.topology(epoch=1))
    member.heartbeat(member.epoch, instance_id="i")
    member.heartbeat(member.epoch, topology=member.topology())
    member.heartbeat(member.epoch, shutdown_application=True)
    other = Member(session, version, member.group_id)
    other.join()
    other.heartbeat(other.epoch, rack_id="r")
    other.leave()
    member.leave()
    member.heartbeat(1)
    Member(session, version).heartbeat(1)
    refused = Member(session, version)
    refused.heartbeat(JOIN)
    refused.heartbeat(-3)
    refused.join(refused.topology("missing"), has_endpoint=False)  # with one, Apache Kafka fails
    refused.leave()
    refused.join(refused.topology("__consumer_offsets"))
    fixed = refused.topology()
    fixed.subtopologies[1].state_changelog_topics[0].partitions = 1
    refused.join(fixed)
    endless = refused.topology()
    endless.subtopologies[0].repartition_sink_topics = []
    refused.join(endless)


def streams_group_describe(session: Session, version: int) -> None:
    member = Member(session, version)
    member.join_and_settle()
    request = StreamsGroupDescribeRequest(
        group_ids=[member.group_id, "missing", ""], include_authorized_operations=True
    )
    session.send_own(request, version)
    member.leave()
    session.send_own(StreamsGroupDescribeRequest(group_ids=[member.group_id]), version)


def streams_group_topology_description_update(session: Session, version: int) -> None:
    session.send_own(StreamsGroupTopologyDescriptionUpdateRequest(group_id="g", member_id="m"), version)
