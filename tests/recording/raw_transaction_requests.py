"""Scenarios for transactions, their administration and their markers; see raw_requests."""

from __future__ import annotations

import time
from typing import Any

from kafka.protocol import admin, producer

from tests.recording.raw_session import ATTEMPTS, RETRYABLE, Session, record_batch


def _initialize(session: Session, transactional_id: str | None, version: int = 4) -> tuple[int, int]:
    response = session.send_until_settled(
        producer.InitProducerIdRequest, version, transactional_id=transactional_id, transaction_timeout_ms=30000
    )
    if response.error_code:
        raise RuntimeError(f"InitProducerId failed: {response}")
    return response.producer_id, response.producer_epoch


def init_producer_id(session: Session, version: int) -> None:
    _initialize(session, None, version)
    _initialize(session, f"initialized-{version}", version)
    session.send(producer.InitProducerIdRequest, version, transactional_id="too-long", transaction_timeout_ms=2**31 - 1)


def add_partitions_to_txn(session: Session, version: int) -> None:
    transactional_id = f"partitions-{version}"
    producer_id, producer_epoch = _initialize(session, transactional_id)
    topics = [{"name": session.topic, "partitions": [0, 1]}]
    for epoch in (producer_epoch, producer_epoch + 5):
        session.send(
            producer.AddPartitionsToTxnRequest,
            version,
            transactions=[
                {
                    "transactional_id": transactional_id,
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                    "verify_only": False,
                    "topics": topics,
                }
            ],
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
    _end(session, transactional_id, producer_id, producer_epoch, committed=False)


def _add_partition(
    session: Session, transactional_id: str, producer_id: int, producer_epoch: int, partition: int
) -> None:
    for _ in range(ATTEMPTS):
        response = session.send(
            producer.AddPartitionsToTxnRequest,
            3,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[{"name": session.topic, "partitions": [partition]}],
        )
        if response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code not in RETRYABLE:
            return
        time.sleep(0.05)


def _end(
    session: Session, transactional_id: str, producer_id: int, producer_epoch: int, *, committed: bool, version: int = 4
) -> Any:
    return session.send_until_settled(
        producer.EndTxnRequest,
        version,
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
    )


def end_txn(session: Session, version: int) -> None:
    """EndTxn at `version`: one committed and one aborted transaction that really wrote, and a refusal."""
    transactional_id = f"ended-{version}"
    for committed in (True, False):
        producer_id, producer_epoch = _initialize(session, transactional_id)
        _add_partition(session, transactional_id, producer_id, producer_epoch, 1)
        batch = record_batch(
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=0, transactional=True, count=1
        )
        session.send(
            producer.ProduceRequest,
            11,
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[{"name": session.topic, "partition_data": [{"index": 1, "records": batch}]}],
        )
        _end(session, transactional_id, producer_id, producer_epoch, committed=committed, version=version)
    session.send(
        producer.EndTxnRequest,
        version,
        transactional_id="never-seen",
        producer_id=producer_id,
        producer_epoch=0,
        committed=True,
    )


def add_offsets_to_txn(session: Session, version: int) -> None:
    transactional_id, group_id = f"offsets-{version}", "frames-offsets"
    producer_id, producer_epoch = _initialize(session, transactional_id)
    fields = {"transactional_id": transactional_id, "producer_id": producer_id, "group_id": group_id}
    session.send(producer.AddOffsetsToTxnRequest, version, **fields, producer_epoch=producer_epoch)
    session.send(producer.AddOffsetsToTxnRequest, version, **fields, producer_epoch=producer_epoch + 9)
    _end(session, transactional_id, producer_id, producer_epoch, committed=True)


def txn_offset_commit(session: Session, version: int) -> None:
    transactional_id, group_id = f"commits-{version}", f"frames-commits-{version}"
    producer_id, producer_epoch = _initialize(session, transactional_id)
    session.send_until_settled(
        producer.AddOffsetsToTxnRequest,
        3,
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        group_id=group_id,
    )
    partitions = [
        {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": 0, "committed_metadata": "frames"}
    ]
    for member_id in ("", "not-a-member"):
        session.send(
            producer.TxnOffsetCommitRequest,
            version,
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=-1,
            member_id=member_id,
            group_instance_id=None,
            topics=[{"name": session.topic, "partitions": partitions}],
        )
    _end(session, transactional_id, producer_id, producer_epoch, committed=True)


def write_txn_markers(session: Session, version: int) -> None:
    transactional_id = f"marked-{version}"
    producer_id, producer_epoch = _initialize(session, transactional_id)
    session.send(
        producer.WriteTxnMarkersRequest,
        version,
        markers=[
            {
                "producer_id": producer_id,
                "producer_epoch": producer_epoch,
                "transaction_result": False,
                "topics": [{"name": name, "partition_indexes": [0]} for name in (session.topic, "missing")],
                "coordinator_epoch": 0,
                "transaction_version": 1,
            }
        ],
    )


def list_transactions(session: Session, version: int) -> None:
    """Lists one open transaction, with filters."""
    transactional_id = f"open-{version}"
    producer_id, producer_epoch = _initialize(session, transactional_id)
    _add_partition(session, transactional_id, producer_id, producer_epoch, 0)
    session.send(
        admin.ListTransactionsRequest,
        version,
        state_filters=["Ongoing", "NoSuchState"],
        producer_id_filters=[producer_id],
        duration_filter=-1,
        transactional_id_pattern="open-.*",
    )
    _end(session, transactional_id, producer_id, producer_epoch, committed=False)


def describe_transactions(session: Session, version: int) -> None:
    transactional_id = "described"
    producer_id, producer_epoch = _initialize(session, transactional_id)
    _add_partition(session, transactional_id, producer_id, producer_epoch, 0)
    session.send(admin.DescribeTransactionsRequest, version, transactional_ids=[transactional_id, "missing"])
    _end(session, transactional_id, producer_id, producer_epoch, committed=False)


def describe_producers(session: Session, version: int) -> None:
    topics = [{"name": session.topic, "partition_indexes": [1, 99]}, {"name": "missing", "partition_indexes": [0]}]
    session.send(admin.DescribeProducersRequest, version, topics=topics)
