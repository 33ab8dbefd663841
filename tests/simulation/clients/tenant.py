"""A tenant, whose rights change while it asks for things, and the officer who changes them.

The tenant has a topic and a group, on which it is given rights and loses them. It never has any right on what belongs
to others, and asks for that all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from fencepost.broker.security.acls import AclOperation, AclPattern, AclPermission, AclResource
from fencepost.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from fencepost.protocol.record_batch import Record, build_batch
from tests.simulation.client import Disconnected
from tests.simulation.clients.actor import Life
from tests.simulation.clients.applications import Play
from tests.simulation.clients.cluster import Cluster
from tests.simulation.principals import TENANT, principal_of

Right = tuple[AclOperation, AclResource, str]

CHANGING: Final[tuple[Right, ...]] = (
    (AclOperation.WRITE, AclResource.TOPIC, TENANT),
    (AclOperation.READ, AclResource.TOPIC, TENANT),
    (AclOperation.READ, AclResource.GROUP, TENANT),
)
"""The rights that the tenant has now and then. It has no others."""

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11
OFFSET_COMMIT_VERSION: Final = 8
ACLS_VERSION: Final = 2
LARGEST_PRODUCER_ID: Final = 6
FETCHED_BYTES: Final = 100_000


def marked(value: str) -> str:
    """A text that is part of no other one, to be found again in what a broker stores."""
    return f"<{value}>"


def produce_request(topic: str, text: str, now_ms: int) -> ProduceRequest:
    batch = bytes(build_batch([Record(0, now_ms, None, text.encode(), ())]))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch)])
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])


def fetch_request(topic: str, offset: int = 0) -> FetchRequest:
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=FETCHED_BYTES)
    return FetchRequest(max_bytes=FETCHED_BYTES, topics=[FetchTopic(topic=topic, partitions=[partition])])


def commit_request(group_id: str, topic: str, offset: int, text: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata=text)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def change_request(right: Right, *, granted: bool) -> CreateAclsRequest | DeleteAclsRequest:
    """What gives the tenant a right, or takes it."""
    operation, resource, name = right
    about = (resource, name, AclPattern.LITERAL, principal_of(TENANT), "*", operation, AclPermission.ALLOW)
    return CreateAclsRequest([AclCreation(*about)]) if granted else DeleteAclsRequest([DeleteAclsFilter(*about)])


def allow_everything(hosts: Sequence[str]) -> CreateAclsRequest:
    """Rules under which applications do what they do."""
    names = {AclResource.TOPIC: "*", AclResource.GROUP: "*", AclResource.TRANSACTIONAL_ID: "*"}
    names[AclResource.CLUSTER] = "kafka-cluster"
    return CreateAclsRequest(
        [
            AclCreation(
                resource, name, AclPattern.LITERAL, principal_of(host), "*", AclOperation.ALL, AclPermission.ALLOW
            )
            for host in hosts
            for resource, name in names.items()
        ]
    )


def officer() -> Play:
    """Gives and takes rights, one change after another; one whose answer is lost is tried again."""

    async def play(life: Life) -> None:
        cluster, has = life.cluster(), dict.fromkeys(CHANGING, False)
        while life.goes_on():
            await life.think(0.02, 0.5)
            right = life.chance.choice(CHANGING)
            request = change_request(right, granted=not has[right])
            while life.goes_on():
                try:
                    await cluster.send(cluster.any_node(), request, ACLS_VERSION)
                    has[right] = not has[right]
                    break
                except Disconnected:
                    await cluster.back_off()
        cluster.close()

    return play


def tenant(others_topic: str, others_group: str, transactional_ids: Sequence[str]) -> Play:
    """others_topic, others_group, transactional_ids: what belongs to others."""

    async def play(life: Life) -> None:
        cluster = life.cluster()
        while life.goes_on():
            await life.think(0.0, 0.15)
            try:
                if life.chance.random() < 0.85:
                    await _use(life, cluster, TENANT, TENANT)
                elif life.chance.random() < 0.5:
                    await _use(life, cluster, others_topic, others_group)
                else:
                    await _meddle(life, cluster, others_topic, transactional_ids)
            except Disconnected:
                await cluster.back_off()
        cluster.close()

    return play


async def _use(life: Life, cluster: Cluster, topic: str, group_id: str) -> None:
    """Raises Disconnected."""
    node, chance = cluster.any_node(), life.chance
    chosen = chance.random()
    if chosen < 0.5:
        requests = [
            produce_request(topic, marked(life.new_value()), life.now_ms()) for _ in range(chance.randint(1, 4))
        ]
        sent = [cluster.send(node, request, PRODUCE_VERSION) for request in requests]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
    elif chosen < 0.8:
        await cluster.send(node, fetch_request(topic), FETCH_VERSION)
    else:
        request = commit_request(group_id, topic, chance.randint(0, 1_000), marked(life.new_value()))
        await cluster.send(node, request, OFFSET_COMMIT_VERSION)


async def _meddle(life: Life, cluster: Cluster, topic: str, transactional_ids: Sequence[str]) -> None:
    """Raises Disconnected."""
    victim, producer_id = life.chance.choice(transactional_ids), life.chance.randint(0, LARGEST_PRODUCER_ID)
    requests: list[tuple[Any, int]] = [
        (InitProducerIdRequest(victim, 10_000), 3),
        (EndTxnRequest(victim, producer_id, 0, committed=life.chance.random() < 0.5), 3),
        (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=victim,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            ),
            3,
        ),
        (DeleteTopicsRequest(topic_names=[topic], timeout_ms=1_000), 3),
        (change_request(life.chance.choice(CHANGING), granted=True), ACLS_VERSION),
    ]
    await cluster.send(cluster.any_node(), *life.chance.choice(requests))
