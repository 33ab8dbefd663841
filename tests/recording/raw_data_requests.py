"""Scenarios for topics, configuration, the cluster, and for producing and reading records; see raw_requests."""

from __future__ import annotations

import time
import uuid
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer

from tests.recording.raw_session import (
    ATTEMPTS,
    GROUP_COORDINATOR,
    READ_COMMITTED,
    TRANSACTION_COORDINATOR,
    Session,
    record_batch,
)


def produce_batch(
    session: Session, version: int, batch: bytes, *, transactional_id: str | None = None, topic: str | None = None
) -> Any:
    return session.send(
        producer.ProduceRequest,
        version,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            {
                "name": topic or session.topic,
                "topic_id": uuid.UUID(int=1) if topic else session.topic_id,
                "partition_data": [{"index": 0, "records": batch}],
            }
        ],
    )


def prepare(session: Session) -> None:
    """Makes the topic and waits for both coordinators to have loaded."""
    session.send(
        admin.CreateTopicsRequest,
        7,
        topics=[
            {"name": session.topic, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        ],
        timeout_ms=10000,
        validate_only=False,
    )
    for key_type, key in ((GROUP_COORDINATOR, "warm-up"), (TRANSACTION_COORDINATOR, "warm-up")):
        for _ in range(ATTEMPTS):
            found = session.send(metadata.FindCoordinatorRequest, 4, key_type=key_type, coordinator_keys=[key])
            if found.coordinators[0].error_code == 0:
                break
            time.sleep(0.1)
    for _ in range(ATTEMPTS):
        described = session.send(metadata.MetadataRequest, 12, topics=[{"topic_id": None, "name": session.topic}])
        if described.topics[0].error_code == 0 and described.topics[0].topic_id:
            session.topic_id = described.topics[0].topic_id
            break
        time.sleep(0.1)
    produce_batch(session, 12, record_batch(count=3))


def api_versions(session: Session, version: int) -> None:
    session.send(metadata.ApiVersionsRequest, version, client_software_name="frames", client_software_version="1")


def describe_metadata(session: Session, version: int) -> None:
    names = [{"topic_id": None, "name": session.topic}, {"topic_id": None, "name": f"missing-{version}"}]
    session.send(
        metadata.MetadataRequest,
        version,
        topics=names,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    if version >= 10:
        session.send(metadata.MetadataRequest, version, topics=[{"topic_id": uuid.UUID(int=5), "name": None}])


def create_topics(session: Session, version: int) -> None:
    name = f"created-{version}"
    topics = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": "cleanup.policy", "value": "compact"}],
        },
        {"name": "not/legal", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []},
        {"name": f"placed-{version}", "num_partitions": -1, "replication_factor": -1, "configs": [],
         "assignments": [{"partition_index": 0, "broker_ids": [1]}]},
    ]  # fmt: skip
    session.send(admin.CreateTopicsRequest, version, topics=topics, timeout_ms=10000, validate_only=False)


def delete_topics(session: Session, version: int) -> None:
    name = f"deleted-{version}"
    session.send(
        admin.CreateTopicsRequest,
        7,
        topics=[{"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}],
        timeout_ms=10000,
        validate_only=False,
    )
    session.send(
        admin.DeleteTopicsRequest,
        version,
        topics=[{"name": name, "topic_id": None}, {"name": None, "topic_id": uuid.UUID(int=7)}],
        topic_names=[name, "missing"],
        timeout_ms=10000,
    )


def create_partitions(session: Session, version: int) -> None:
    session.send(
        admin.CreatePartitionsRequest,
        version,
        topics=[
            {"name": session.topic, "count": 3 + version, "assignments": None},
            {"name": "missing", "count": 2, "assignments": [{"broker_ids": [1]}]},
        ],
        timeout_ms=10000,
        validate_only=False,
    )


def describe_configs(session: Session, version: int) -> None:
    keys = ["cleanup.policy", "min.insync.replicas", "max.message.bytes"]
    session.send(
        admin.DescribeConfigsRequest,
        version,
        resources=[
            {"resource_type": 2, "resource_name": session.topic, "configuration_keys": keys},
            {"resource_type": 4, "resource_name": "1", "configuration_keys": ["transaction.max.timeout.ms"]},
            {"resource_type": 2, "resource_name": "missing", "configuration_keys": None},
        ],
        include_synonyms=True,
        include_documentation=True,
    )


def describe_cluster(session: Session, version: int) -> None:
    session.send(admin.DescribeClusterRequest, version, include_cluster_authorized_operations=True, endpoint_type=1)


def describe_topic_partitions(session: Session, version: int) -> None:
    topics = [{"name": session.topic}, {"name": "missing"}]
    session.send(
        admin.DescribeTopicPartitionsRequest, version, topics=topics, response_partition_limit=2000, cursor=None
    )
    session.send(
        admin.DescribeTopicPartitionsRequest,
        version,
        topics=topics[:1],
        response_partition_limit=1,
        cursor={"topic_name": session.topic, "partition_index": 1},
    )
    session.send(
        admin.DescribeTopicPartitionsRequest, version, topics=topics[:1], response_partition_limit=1, cursor=None
    )


def produce(session: Session, version: int) -> None:
    if version < 3:
        return  # advertised for old clients' sake, but no longer decoded
    produce_batch(session, version, record_batch())
    produce_batch(session, version, record_batch(), topic="missing")
    # A batch of an unknown epoch order: the partition's refusal with a message.
    produce_batch(session, version, record_batch(producer_id=900_000 + version, producer_epoch=0, base_sequence=5))


def fetch(session: Session, version: int) -> None:
    partition = {
        "partition": 0,
        "current_leader_epoch": 0,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1,
    }
    common = {
        "replica_id": -1,
        "max_wait_ms": 10,
        "min_bytes": 1,
        "max_bytes": 1,
        "isolation_level": READ_COMMITTED,
        "rack_id": "",
    }
    topic = {"topic": session.topic, "topic_id": session.topic_id}
    session.send(
        consumer.FetchRequest,
        version,
        **common,
        session_id=0,
        session_epoch=-1,
        topics=[{**topic, "partitions": [partition]}],
        forgotten_topics_data=[],
    )
    past_end = {**partition, "fetch_offset": 10_000}
    missing = {"topic": "missing", "topic_id": uuid.UUID(int=9)}
    opened = session.send(
        consumer.FetchRequest,
        version,
        **common,
        session_id=0,
        session_epoch=0,
        topics=[{**topic, "partitions": [past_end]}, {**missing, "partitions": [partition]}],
        forgotten_topics_data=[],
    )
    if version >= 7:
        session.send(
            consumer.FetchRequest,
            version,
            **common,
            session_id=opened.session_id,
            session_epoch=1,
            topics=[],
            forgotten_topics_data=[{**topic, "partitions": [0]}],
        )


def fetch_aborted(session: Session, version: int) -> None:
    """Reads past the aborted transaction that `end_txn` left in partition 1."""
    partition = {
        "partition": 1,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 2000,
    }
    session.send(
        consumer.FetchRequest,
        version,
        replica_id=-1,
        max_wait_ms=10,
        min_bytes=1,
        max_bytes=2000,
        isolation_level=READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": session.topic, "topic_id": session.topic_id, "partitions": [partition]}],
        forgotten_topics_data=[],
        rack_id="",
    )


def list_offsets(session: Session, version: int) -> None:
    latest, earliest, by_time = -1, -2, 1_700_000_000_001
    specifications = [latest, earliest, by_time] + ([-3] if version >= 7 else [])
    for timestamp in specifications:
        session.send(
            consumer.ListOffsetsRequest,
            version,
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=[
                {
                    "name": session.topic,
                    "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}],
                },
                {
                    "name": "missing",
                    "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}],
                },
            ],
            timeout_ms=5000,
        )


def offset_for_leader_epoch(session: Session, version: int) -> None:
    partitions = [
        {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0},
        {"partition": 99, "current_leader_epoch": -1, "leader_epoch": 0},
    ]
    session.send(
        consumer.OffsetForLeaderEpochRequest,
        version,
        replica_id=-1,
        topics=[{"topic": session.topic, "partitions": partitions}],
    )


def find_coordinator(session: Session, version: int) -> None:
    for key_type in (GROUP_COORDINATOR, TRANSACTION_COORDINATOR)[: 1 if version == 0 else 2]:
        session.send(
            metadata.FindCoordinatorRequest,
            version,
            key=f"key-{version}",
            key_type=key_type,
            coordinator_keys=[f"key-{version}", "other"],
        )
