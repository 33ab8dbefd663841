"""Scenarios for consumer groups and their offsets; see raw_requests."""

from __future__ import annotations

import time

from kafka.protocol import admin, consumer

from tests.recording.raw_session import ATTEMPTS, Session


def _join(session: Session, group_id: str, version: int = 9) -> tuple[str, int]:
    """Makes this connection the only, leading member of a group; returns member id and generation."""
    member_id = ""
    for _ in range(ATTEMPTS):
        response = session.send(
            consumer.JoinGroupRequest,
            version,
            group_id=group_id,
            session_timeout_ms=10000,
            rebalance_timeout_ms=10000,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"}],
            reason="recorded",
        )
        member_id = response.member_id or member_id
        if response.error_code == 0:
            return member_id, response.generation_id
        time.sleep(0.02)
    raise RuntimeError(f"JoinGroup v{version} did not succeed: {response}")


def _synchronize(session: Session, group_id: str, member_id: str, generation_id: int, version: int = 5) -> None:
    session.send(
        consumer.SyncGroupRequest,
        version,
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member_id, "assignment": b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}],
    )


def _leave(session: Session, group_id: str, member_id: str, version: int = 5) -> None:
    session.send(
        consumer.LeaveGroupRequest,
        version,
        group_id=group_id,
        member_id=member_id,
        members=[{"member_id": member_id, "group_instance_id": None, "reason": "recorded"}],
    )


def join_group(session: Session, version: int) -> None:
    group_id = f"joined-{version}"
    member_id, generation_id = _join(session, group_id, version)
    _synchronize(session, group_id, member_id, generation_id)
    _leave(session, group_id, member_id)


def sync_group(session: Session, version: int) -> None:
    group_id = f"synchronized-{version}"
    member_id, generation_id = _join(session, group_id)
    _synchronize(session, group_id, member_id, generation_id, version)
    _synchronize(session, group_id, "stranger", generation_id, version)
    _leave(session, group_id, member_id)


def heartbeat(session: Session, version: int) -> None:
    group_id = f"beating-{version}"
    member_id, generation_id = _join(session, group_id)
    _synchronize(session, group_id, member_id, generation_id)
    for generation in (generation_id, generation_id + 7):
        session.send(
            consumer.HeartbeatRequest,
            version,
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=None,
        )
    _leave(session, group_id, member_id)


def leave_group(session: Session, version: int) -> None:
    group_id = f"left-{version}"
    member_id, generation_id = _join(session, group_id)
    _synchronize(session, group_id, member_id, generation_id)
    _leave(session, group_id, member_id, version)
    _leave(session, group_id, member_id, version)


def _commit(session: Session, group_id: str, version: int = 9, *, member_id: str = "") -> None:
    partitions = [
        {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": 0, "committed_metadata": "frames"}
    ]
    session.send(
        consumer.OffsetCommitRequest,
        version,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id=member_id,
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[{"name": session.topic, "topic_id": session.topic_id, "partitions": partitions}],
    )


def offset_commit(session: Session, version: int) -> None:
    _commit(session, f"frames-{version}", version)
    _commit(session, f"frames-{version}", version, member_id="stranger")


def offset_fetch(session: Session, version: int) -> None:
    group_id = "frames-fetched"
    _commit(session, group_id)
    topic = {"name": session.topic, "partition_indexes": [0, 1]}
    grouped = [{**topic, "topic_id": session.topic_id}]
    session.send(
        consumer.OffsetFetchRequest,
        version,
        group_id=group_id,
        topics=[topic],
        groups=[{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": grouped}],
        require_stable=True,
    )
    if version >= 2:
        session.send(
            consumer.OffsetFetchRequest,
            version,
            group_id=group_id,
            topics=None,
            groups=[{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}],
            require_stable=False,
        )


def offset_delete(session: Session, version: int) -> None:
    _commit(session, "frames-pruned")
    topics = [{"name": session.topic, "partitions": [{"partition_index": 0}]}]
    session.send(consumer.OffsetDeleteRequest, version, group_id="frames-pruned", topics=topics)
    session.send(consumer.OffsetDeleteRequest, version, group_id="missing", topics=topics)


def describe_groups(session: Session, version: int) -> None:
    group_id = f"described-{version}"
    member_id, generation_id = _join(session, group_id)
    _synchronize(session, group_id, member_id, generation_id)
    session.send(admin.DescribeGroupsRequest, version, groups=[group_id, "missing"], include_authorized_operations=True)
    _leave(session, group_id, member_id)


def list_groups(session: Session, version: int) -> None:
    session.send(admin.ListGroupsRequest, version, states_filter=["Empty"], types_filter=["classic"])


def delete_groups(session: Session, version: int) -> None:
    group_id = f"removed-{version}"
    _commit(session, group_id)
    session.send(admin.DeleteGroupsRequest, version, groups_names=[group_id, "missing"])
