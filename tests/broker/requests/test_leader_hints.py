"""Leaders that a refusal names, as a node alone knows them; several nodes are tested with their leases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.requests.fetch_sessions import FetchedPartition
from fencepost.broker.requests.leader_hints import current_leader, endpoints_of, name_leaders, nodes_alive
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.leaders import LeaderIdAndEpoch
from fencepost.protocol.messages.fetch import PartitionData
from tests.support.handler_context import NODE_ID, HandlerBroker, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 1)
        yield opened


async def test_the_leader_of_a_partition_is_this_node_in_its_leader_epoch(broker: HandlerBroker) -> None:
    epoch = broker.log("orders").leader_epoch
    assert current_leader(broker.services, "orders", 0) == LeaderIdAndEpoch(NODE_ID, epoch)
    assert current_leader(broker.services, "nothing", 0) == LeaderIdAndEpoch(-1, -1)


async def test_only_nodes_that_are_alive_have_an_address(broker: HandlerBroker) -> None:
    (here,) = nodes_alive(broker.services)
    listener = broker.services.listener
    assert (here.node_id, here.host, here.port) == (NODE_ID, listener.host, listener.port)
    assert endpoints_of(broker.services, {NODE_ID, NODE_ID + 1}) == [here]
    assert endpoints_of(broker.services, {NODE_ID + 1}) == endpoints_of(broker.services, ()) == []


@pytest.mark.parametrize(
    ("error", "is_named"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
        (ErrorCode.NONE, False),
    ],
)
async def test_a_leader_is_named_to_a_client_whose_leader_is_outdated(
    broker: HandlerBroker, error: ErrorCode, is_named: bool
) -> None:
    wanted = FetchedPartition("orders", bytes(16), 0, 0, 1_000, -1)
    answer = PartitionData(partition_index=0, error_code=error)
    assert name_leaders(broker.services, [(wanted, answer)]) == ({NODE_ID} if is_named else set())
    assert (answer.current_leader == current_leader(broker.services, "orders", 0)) is is_named
