"""High watermarks are asked of the leaders, one request for each; a leader that does not answer fails its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fencepost.broker.hosting.peers import PeerUnreachable
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.share.end_offsets import end_offsets
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.captured_events import capture_logs

HERE, AT_TWO, AWAY, LOST, NOWHERE = (TopicPartition("orders", number) for number in range(5))
LEADERS = {AT_TWO: 2, AWAY: 2, LOST: 3}


def topics() -> Any:
    return SimpleNamespace(
        log=lambda name: SimpleNamespace(high_watermark=7) if name == HERE else None,
        placement=SimpleNamespace(
            leader=lambda name: SimpleNamespace(node_id=LEADERS[name]) if name in LEADERS else None,
            is_local=lambda _name: False,
        ),
    )


class Peers:
    """Node 2 has offset 100 in each partition but one, which moved away from it; node 3 does not answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[int]]] = []

    async def request(
        self, node_id: int, request: ListOffsetsRequest, _version: int, _time_out_s: float
    ) -> ListOffsetsResponse:
        (topic,) = request.topics
        self.asked.append((node_id, sorted(one.partition_index for one in topic.partitions)))
        if node_id == 3:
            raise PeerUnreachable("planted")
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        ListOffsetsPartitionResponse(
                            one.partition_index,
                            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if one.partition_index == AWAY.partition else 0,
                            offset=100,
                        )
                        for one in topic.partitions
                    ],
                )
            ]
        )


async def test_each_leader_is_asked_once_and_answers_for_its_own() -> None:
    peers: Any = Peers()
    with capture_logs() as lines:
        found = await end_offsets(topics(), peers, [HERE, AT_TWO, AWAY, LOST, NOWHERE])
    assert found == {
        HERE: 7,
        AT_TWO: 100,
        AWAY: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        LOST: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        NOWHERE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    assert sorted(peers.asked) == [(2, [1, 2]), (3, [3])]
    assert [(line["event"], line["node_id"]) for line in lines] == [("end_offsets_not_answered", 3)]


async def test_a_node_alone_asks_nobody() -> None:
    assert await end_offsets(topics(), None, [HERE, NOWHERE]) == {HERE: 7, NOWHERE: ErrorCode.NOT_LEADER_OR_FOLLOWER}
