"""Committed offsets of one group are read as a whole, and committed in pieces with an answer for each partition."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.client.errors import ClusterError, RefusedError, UnreachableError
from fencepost.console.reading.group_offsets import (
    OFFSETS_PER_REQUEST,
    CommittedOffset,
    commit_offsets,
    read_offsets,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import OffsetCommitRequest


class FakeCluster:
    """A coordinator with one answer for each request: a reply, a function of the request, or an error."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def send(self, request: Any, node_id: int) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer


def fetched(*partitions: tuple[int, int, int], code: int = 0) -> Any:
    """A reply on `orders`: (partition, offset, error code)."""
    found = [
        SimpleNamespace(
            partition_index=index, committed_offset=offset, committed_leader_epoch=3, metadata=None, error_code=error
        )
        for index, offset, error in partitions
    ]
    group = SimpleNamespace(error_code=code, topics=[SimpleNamespace(name="orders", partitions=found)])
    return SimpleNamespace(groups=[group])


def read(reply: Any) -> Any:
    cluster: Any = FakeCluster(reply)
    return asyncio.run(read_offsets(cluster, 1, "billing"))


def test_offsets_are_read_with_what_belongs_to_them() -> None:
    found = read(fetched((1, 7, 0), (0, 5, 0), (2, -1, 0)))
    assert found == {("orders", 0): CommittedOffset(5, 3), ("orders", 1): CommittedOffset(7, 3)}


def test_an_offset_that_an_open_transaction_holds_is_named() -> None:
    with pytest.raises(ClusterError, match="a transaction that is still open holds an offset of billing for orders-1"):
        read(fetched((0, 5, 0), (1, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT)))


def test_what_cannot_be_read_is_an_error_and_not_no_offset() -> None:
    with pytest.raises(RefusedError, match="NOT_COORDINATOR"):
        read(fetched(code=ErrorCode.NOT_COORDINATOR))
    with pytest.raises(RefusedError, match="orders-0"):
        read(fetched((0, 5, ErrorCode.TOPIC_AUTHORIZATION_FAILED)))


def accepted(request: OffsetCommitRequest, *refused: tuple[str, int]) -> Any:
    return SimpleNamespace(
        topics=[
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    SimpleNamespace(
                        partition_index=one.partition_index,
                        error_code=22 if (topic.name, one.partition_index) in refused else 0,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def commit(cluster: Any, count: int) -> dict[str, int]:
    offsets = {("orders", index): CommittedOffset(index, 4, "of billing") for index in range(count)}
    return asyncio.run(commit_offsets(cluster, 1, "billing", {**offsets, ("audit", 0): CommittedOffset(9)}))


def test_offsets_are_committed_in_pieces_with_epoch_and_metadata() -> None:
    cluster = FakeCluster(accepted, accepted)
    assert commit(cluster, OFFSETS_PER_REQUEST + 5) == {}
    sent = [one for request in cluster.asked for topic in request.topics for one in topic.partitions]
    assert [len(request.topics) for request in cluster.asked] == [2, 1]
    assert len(sent) == OFFSETS_PER_REQUEST + 6
    last = sent[-1]
    assert (last.committed_offset, last.committed_leader_epoch, last.committed_metadata) == (2_004, 4, "of billing")


def test_partitions_that_were_refused_are_named_by_their_errors() -> None:
    cluster = FakeCluster(lambda request: accepted(request, ("orders", 1), ("audit", 0)))
    assert commit(cluster, 3) == {"orders-1": 22, "audit-0": 22}


def test_an_error_before_anything_is_committed_is_an_error_and_later_one_of_the_partitions_left() -> None:
    with pytest.raises(UnreachableError):
        commit(FakeCluster(UnreachableError("gone")), 3)
    cluster = FakeCluster(accepted, UnreachableError("gone"), RefusedError(16))
    failed = commit(cluster, 2 * OFFSETS_PER_REQUEST + 1)
    assert len(failed) == OFFSETS_PER_REQUEST + 2
    assert failed[f"orders-{OFFSETS_PER_REQUEST}"] == ErrorCode.NETWORK_EXCEPTION
    assert failed[f"orders-{2 * OFFSETS_PER_REQUEST}"] == 16
