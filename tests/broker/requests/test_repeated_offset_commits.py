"""Cached OffsetCommit requests are answered and stored like decoded ones.

Two brokers are sent the same frames. The client of one stays connected, each frame to the other comes from a connection
of its own, whose cache is empty.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.requests.request_cache import MAXIMUM_BYTES, MAXIMUM_COUNT
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.group_membership import SyncGroupRequest, SyncGroupRequestAssignment
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from fencepost.protocol.schema import decode
from fencepost.protocol.shape import ReplyForm
from tests.support.group_broker import GroupBroker
from tests.support.known_requests import FrameClient

BY_NAME, BY_ID = 9, 10
STEPS_COUNT = 300


def partition(
    index: int, offset: int, *, leader_epoch: int = 0, metadata: str | None = ""
) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        committed_metadata=metadata,
    )


def commit_frame(
    *partitions: OffsetCommitRequestPartition,
    topic: str = "orders",
    version: int = BY_NAME,
    correlation_id: int = 1,
    client_id: str | None = "client",
    **fields: Any,
) -> bytes:
    topics = [topic_of(topic, version, *partitions)]
    request = OffsetCommitRequest(**{"group_id": "g", "topics": topics, **fields})
    return request_frame(correlation_id, client_id, request, version)


def topic_of(name: str, version: int, *partitions: OffsetCommitRequestPartition) -> OffsetCommitRequestTopic:
    topic_id = name.encode().ljust(16, b"-")[:16]  # as topics in memory have it
    return OffsetCommitRequestTopic(
        name=name if version < BY_ID else "",
        topic_id=topic_id if version >= BY_ID else bytes(16),
        partitions=list(partitions),
    )


def errors(reply: bytes | str | None, version: int = BY_NAME) -> list[int]:
    assert isinstance(reply, bytes)
    position = LENGTH_BYTES + 4 + response_header_version(ApiKey.OFFSET_COMMIT, version)
    response = decode(OffsetCommitResponse, reply, version, position)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as made:
        yield made


@pytest.fixture
async def client(broker: GroupBroker) -> FrameClient:
    return FrameClient(broker.services())


async def committed(broker: GroupBroker) -> dict[tuple[str, int], int]:
    fetched = await broker.groups.fetch_offsets("g", None, require_stable=False)
    assert isinstance(fetched, list)
    return {(found.topic_partition.topic, found.topic_partition.partition): found.offset for found in fetched}


@pytest.mark.parametrize("version", range(2, 11))
async def test_only_the_first_commit_of_partitions_is_decoded(
    broker: GroupBroker, client: FrameClient, version: int
) -> None:
    for offset in (0, -1, 2**63 - 1, 7):
        frame = commit_frame(
            partition(0, offset), partition(1, offset // 2), version=version, correlation_id=offset % 9
        )
        reply = await client.send(frame)
        assert errors(reply, version) == [ErrorCode.NONE] * 2
        assert isinstance(reply, bytes)
        assert reply[LENGTH_BYTES : LENGTH_BYTES + 4] == (offset % 9).to_bytes(4, "big")
        assert await committed(broker) == {("orders", 0): offset, ("orders", 1): offset // 2}
    assert client.known_count == 3


async def test_commits_of_several_groups_and_topics_are_distinguished(broker: GroupBroker, client: FrameClient) -> None:
    both = [topic_of("payments", BY_NAME, partition(0, 1)), topic_of("orders", BY_NAME, partition(1, 2))]
    frames = [
        commit_frame(partition(0, 5)),
        commit_frame(partition(1, 6)),
        commit_frame(partition(0, 7), group_id="h"),
        commit_frame(topics=both),
    ]
    for frame in frames * 2:
        assert set(errors(await client.send(frame))) == {ErrorCode.NONE}
    assert client.known_count == len(frames)
    assert await committed(broker) == {("orders", 0): 5, ("orders", 1): 2, ("payments", 0): 1}


async def test_requests_of_one_size_with_their_offsets_elsewhere_are_not_mixed_up(
    broker: GroupBroker, client: FrameClient
) -> None:
    frames = [
        commit_frame(partition(0, 1, metadata="me"), topic="orders"),
        commit_frame(partition(0, 2), topic="payments"),
    ]
    assert len(frames[0]) == len(frames[1])
    for frame in frames * 2:
        assert errors(await client.send(frame)) == [ErrorCode.NONE]
    assert client.known_count == 2
    assert await committed(broker) == {("orders", 0): 1, ("payments", 0): 2}


@pytest.mark.parametrize(
    ("frame", "known_count"),
    [
        (commit_frame(partition(0, 1), topic="missing"), 2),
        (commit_frame(partition(0, 1), partition(9, 1)), 2),
        (commit_frame(partition(0, 1), partition(-1, 1)), 2),
        (commit_frame(partition(0, 1), partition(0, 2)), 2),
        (commit_frame(), 2),
        (commit_frame(topics=[]), 2),
        (commit_frame(partition(0, 1, metadata="long" * 2_000)), 0),
        (commit_frame(*[partition(0, 1)] * (MAXIMUM_BYTES // 16)), 0),
        (commit_frame(partition(0, 1))[:-1] + b"\x01\x63\x02ab", 2),
        (commit_frame(partition(0, 1)).replace(b"\x02\x07orders", b"\x82\x00\x07orders"), 2),
        (commit_frame(partition(0, 1)) + b"junk", 2),
        (commit_frame(partition(0, 1), generation_id_or_member_epoch=3, member_id="stranger"), 2),
    ],
    ids=[
        "no such topic",
        "no such partition",
        "no partition has this number",
        "one partition twice",
        "no partitions",
        "no topics",
        "too large for its metadata",
        "too many partitions",
        "with a field that is not known",
        "written in another way",
        "with bytes behind it",
        "of a stranger",
    ],
)
async def test_any_other_request_is_answered_like_a_decoded_one(frame: bytes, known_count: int) -> None:
    async with GroupBroker(offset_metadata_max_bytes=10) as one, GroupBroker(offset_metadata_max_bytes=10) as other:
        known, decoded = FrameClient(one.services()), FrameClient(other.services())
        for _ in range(3):
            decoded.connect_again()
            reply = await known.send(frame)
            assert isinstance(reply, bytes)
            assert reply == await decoded.send(frame)
        assert await committed(one) == await committed(other)
        assert known.known_count == known_count


async def test_a_topic_that_was_created_again_is_not_mistaken_for_the_one_before(
    broker: GroupBroker, client: FrameClient
) -> None:
    frames = {version: commit_frame(partition(1, 3), version=version) for version in (BY_NAME, BY_ID)}
    for frame in (frames[BY_NAME], frames[BY_ID], frames[BY_ID]):
        await client.send(frame)
    assert client.known_count == 1
    broker.topics.metadata.put(TopicMetadata("orders", b"another id of it", 1))
    assert errors(await client.send(frames[BY_ID]), BY_ID) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert errors(await client.send(frames[BY_NAME])) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.known_count == 3
    broker.topics.metadata.put(TopicMetadata("orders", b"orders----------", 2))
    for version, frame in frames.items():
        assert errors(await client.send(frame), version) == [ErrorCode.NONE]
    assert client.known_count == 5


async def test_a_change_of_other_topics_is_none_of_a_commits_business(broker: GroupBroker, client: FrameClient) -> None:
    await client.send(commit_frame(partition(0, 1)))
    broker.topics.add("invoices", 1)
    for _ in range(2):
        assert errors(await client.send(commit_frame(partition(0, 2)))) == [ErrorCode.NONE]
    assert client.known_count == 2


async def test_the_cache_is_switched_off_for_a_client_whose_commits_never_repeat(client: FrameClient) -> None:
    for number in range(MAXIMUM_COUNT * 2):
        await client.send(commit_frame(partition(0, 1, metadata=f"at {number}")))
    assert client.remembered_count == client.known_count == 0


async def test_a_commit_that_cannot_be_stored_is_answered_as_if_it_were_decoded(
    broker: GroupBroker, client: FrameClient
) -> None:
    frame = commit_frame(partition(0, 1))
    await client.send(frame)
    for log in broker.topics.logs.values():
        log.disk_failed = True
    known = await client.send(frame)
    assert client.known_count == 1
    client.connect_again()
    assert await client.send(frame) == known
    assert errors(known) == [ErrorCode.NOT_COORDINATOR]


async def test_a_commit_that_fails_unexpectedly_is_answered_as_if_it_were_decoded(
    broker: GroupBroker, client: FrameClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = commit_frame(partition(0, 1))
    await client.send(frame)

    async def fail(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(type(broker.groups), "commit_offsets", fail)
    known = await client.send(frame)
    assert client.known_count == 1
    client.connect_again()
    assert await client.send(frame) == known
    assert errors(known) == [ErrorCode.UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize("planted", ["write", "__init__"])
async def test_a_reply_that_fails_unexpectedly_is_answered_as_a_failure(
    client: FrameClient, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    for _ in range(2 if planted == "write" else 1):
        assert errors(await client.send(commit_frame(partition(0, 1)))) == [ErrorCode.NONE]
    with monkeypatch.context() as broken:
        broken.setattr(ReplyForm, planted, fail)
        failed = await client.send(commit_frame(partition(0, 1)))
    assert errors(failed) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert errors(await client.send(commit_frame(partition(0, 1)))) == [ErrorCode.NONE]


async def test_the_reply_to_a_cached_commit_leaves_when_it_is_durable(broker: GroupBroker, client: FrameClient) -> None:
    frame = commit_frame(partition(0, 1))
    await client.send(frame)
    for log in broker.topics.logs.values():
        log.flush_gate.clear()
    waiting = asyncio.ensure_future(client.send(frame))
    for _ in range(10):
        await asyncio.sleep(0)
    assert client.known_count == 1
    assert not waiting.done()
    for log in broker.topics.logs.values():
        log.flush_gate.set()
    assert errors(await waiting) == [ErrorCode.NONE]


class Consumers:
    """Frames by chance: what consumers commit, now and then what they should not."""

    def __init__(self, seed: int, member_ids: list[str]) -> None:
        self._random = random.Random(seed)
        self._member_ids = ["", *member_ids]
        self.generation_id = 1
        self._version = self._random.choice((2, 5, 6, 7, 8, BY_NAME, BY_ID, BY_ID))

    def frame(self) -> bytes:
        choose = self._random
        version = self._version if choose.randrange(20) else choose.randrange(2, 11)
        topics = [
            topic_of(name, version, *(self._partition(version) for _ in range(choose.choice((0, 1, 1, 1, 2)))))
            for name in choose.choices(("orders", "orders", "payments", "missing"), k=choose.choice((1, 1, 1, 2)))
        ]
        request = OffsetCommitRequest(
            group_id=choose.choice(("g", "g", "g", "h", "classic", "classic", "")),
            generation_id_or_member_epoch=choose.choice((-1, -1, 1, self.generation_id, self.generation_id)),
            member_id=choose.choice(self._member_ids),
            group_instance_id=choose.choice((None,) * 9 + ("instance",)) if version >= 7 else None,
            retention_time_ms=choose.choice((-1, -1, 5)) if version <= 4 else -1,
            topics=topics,
        )
        return request_frame(choose.randrange(-(2**31), 2**31), choose.choice(("client", None)), request, version)

    def _partition(self, version: int) -> OffsetCommitRequestPartition:
        choose = self._random
        return partition(
            choose.choice((0, 0, 0, 0, 1, 2)),
            choose.choice((-1, 0, 5, choose.getrandbits(63))),
            leader_epoch=choose.choice((0, 0, -1)) if version >= 6 else -1,
            metadata=choose.choice(("", "", "", None, "note", "long" * 5)),
        )


@pytest.mark.parametrize("seed", range(8))
async def test_cached_requests_are_answered_and_stored_like_decoded_ones(seed: int) -> None:
    choose = random.Random(-1 - seed)
    brokers = [GroupBroker(offset_metadata_max_bytes=10) for _ in range(2)]
    for broker in brokers:
        await broker.start()
        member_ids = [await broker.stable_member("classic"), "consumer"]
    known, decoded = [FrameClient(broker.services()) for broker in brokers]
    consumers = Consumers(seed, member_ids)
    for _ in range(STEPS_COUNT):
        step = choose.randrange(40)
        changed = TopicMetadata(
            "orders", choose.choice((b"another id of it", b"orders----------")), choose.randrange(1, 4)
        )
        for broker in brokers:
            broker.clock.time_ms += step
            if step == 0:
                broker.topics.metadata.put(changed)
            elif step in (1, 3):
                joined = await broker.join("classic", member_ids[0])
                consumers.generation_id = joined.generation_id
                if step == 3:
                    await broker.call(
                        SyncGroupRequest(
                            group_id="classic",
                            generation_id=joined.generation_id,
                            member_id=joined.member_id,
                            assignments=[
                                SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"assigned")
                            ],
                        ),
                        2,
                    )
            elif step == 2:
                joining = ConsumerGroupHeartbeatRequest(
                    group_id="h",
                    member_id="consumer",
                    rebalance_timeout_ms=1_000,
                    subscribed_topic_names=["orders"],
                    topic_partitions=[],
                )
                await broker.call(joining, 1)
        frame = consumers.frame()
        for _ in range(choose.choice((1, 3))):
            decoded.connect_again()
            assert await known.send(frame) == await decoded.send(frame)
    stored, also_stored = ([log.batches for log in broker.topics.logs.values()] for broker in brokers)
    assert stored == also_stored
    assert decoded.known_count == 0
    assert known.known_count >= STEPS_COUNT // 4
    for broker in brokers:
        await broker.groups.close()
