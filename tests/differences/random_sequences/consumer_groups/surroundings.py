"""What is around the members of a group: its settings, the topics that come, grow and go, and what it looks like."""

from __future__ import annotations

import time
from random import Random
from typing import Any, Final

from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from fencepost.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.differences.exchange import ATTEMPTS, GROUP, PAUSE_S, Exchange
from tests.differences.random_sequences.hashes import coordinator_partition
from tests.differences.random_sequences.steps import SlicedWork

MAX_PARTITIONS: Final = 6
JOIN: Final = 0
TIMEOUT_MS: Final = 600_000  # far longer than a run
UNIFORM, RANGE = "uniform", "range"
DATA, MORE, LATE = "data", "more", "late"
GROUP_CONFIG: Final = 32
SETTINGS: Final = {"consumer.assignment.interval.ms": "0", "consumer.session.timeout.ms": "60000"}
"""Each change is assigned at once, however soon it follows another."""


class Surroundings:
    """Of one group, the members of which ask for one assignor."""

    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = SlicedWork(exchange, random)
        self.exchange = exchange
        self.random = random
        self.topics = {DATA: 3, MORE: 2}
        self.ids: dict[str, bytes] = {}
        self.names = {base: exchange.name(base) for base in (DATA, MORE, LATE)}
        for base, count in self.topics.items():
            self.ids[base] = exchange.topic_id(exchange.create_topic(base, partitions=count))
        self.bases = {topic_id: base for base, topic_id in self.ids.items()}
        self.assignor = self.random.choice((UNIFORM, RANGE, RANGE, RANGE))
        self.group = exchange.name("group")
        exchange.find_coordinator(self.group, GROUP)
        self.configure(self.group)
        self.probe = self.begin_to_probe()
        self.probe_epoch = JOIN
        self.see_topics()

    def configure(self, group: str) -> None:
        configs = [IncrementalAlterableConfig(name, 0, value) for name, value in SETTINGS.items()]
        self.exchange.call(
            IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(GROUP_CONFIG, group, configs)]), 1
        )
        wanted = DescribeConfigsRequest([DescribeConfigsResource(GROUP_CONFIG, group, list(SETTINGS))])
        for _ in range(ATTEMPTS):
            found = self.exchange.call(wanted, 4).results[0].configs
            if {config.name: config.value for config in found} == SETTINGS:
                break
            time.sleep(PAUSE_S)

    def begin_to_probe(self) -> str:
        """Another group of the same coordinator: what that one has seen of the topics, ours sees, too."""
        index = coordinator_partition(self.group)
        bases = (f"probe{number}" for number in range(1_000))
        name = next(name for name in map(self.exchange.name, bases) if coordinator_partition(name) == index)
        self.exchange.find_coordinator(name, GROUP)
        return name

    def see_topics(self) -> None:
        """Return when the coordinator knows the topics as they are."""
        before = self.described_epoch(self.probe)
        for _ in range(ATTEMPTS):
            request = ConsumerGroupHeartbeatRequest(self.probe, "probe", self.probe_epoch)
            if self.probe_epoch == JOIN:
                request.rebalance_timeout_ms, request.topic_partitions = TIMEOUT_MS, []
                request.subscribed_topic_names = list(self.names.values())
            self.probe_epoch = self.exchange.call(request, 1).member_epoch
            if self.described_epoch(self.probe) > before:
                return
            time.sleep(PAUSE_S)

    def described(self, group: str) -> Any:
        return self.exchange.call(ConsumerGroupDescribeRequest([group]), 1).groups[0]

    def described_epoch(self, group: str) -> int:
        epoch: int = self.described(group).group_epoch
        return epoch

    def is_consumer_group(self) -> bool:
        return not self.described(self.group).error_code

    # Topics

    def grow(self) -> None:
        base = self.random.choice(list(self.topics))
        if self.topics[base] >= MAX_PARTITIONS:
            return
        self.topics[base] += 1
        topics = [CreatePartitionsTopic(self.names[base], self.topics[base], None)]
        self.steps.ask(f"{base} grows", CreatePartitionsRequest(topics, 5_000), 3)
        self.see_topics()

    def create(self) -> None:
        """A third topic, or the second one again."""
        missing = [base for base in (LATE, MORE) if base not in self.topics]
        if not missing:
            return
        base = self.random.choice(missing)
        self.topics[base] = 2
        self.ids[base] = self.exchange.topic_id(self.exchange.create_topic(base, partitions=2))
        self.bases[self.ids[base]] = base
        self.exchange.note(self.steps.situation(f"{base} is created"), 0, base)
        self.see_topics()

    def delete(self) -> None:
        if MORE not in self.topics or self.steps.happens(0.5):
            return
        del self.topics[MORE]
        self.steps.ask("more is deleted", DeleteTopicsRequest([DeleteTopicState(self.names[MORE])], [], 5_000), 6)
        self.see_topics()

    def some_topics(self) -> tuple[str, ...]:
        if self.assignor == UNIFORM:
            return (DATA,)
        bases = sorted(self.names)
        return tuple(sorted(self.random.sample(bases, self.random.choice((1, 1, 2, 2, 3)))))

    # The group as a whole

    def describe(self) -> None:
        version = self.steps.version(ConsumerGroupDescribeRequest)
        self.steps.ask("describe the group", ConsumerGroupDescribeRequest([self.group]), version)
        if not self.is_consumer_group():
            self.describe_as_classic()

    def describe_as_classic(self) -> None:
        version = self.steps.version(DescribeGroupsRequest)
        self.steps.ask("describe the group as a classic one", DescribeGroupsRequest([self.group]), version)

    def delete_group(self) -> None:
        self.steps.ask("delete the group", DeleteGroupsRequest([self.group]), self.steps.version(DeleteGroupsRequest))
