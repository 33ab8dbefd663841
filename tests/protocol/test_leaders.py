"""Leaders of partitions as replies name them."""

from __future__ import annotations

from fencepost.protocol.leaders import LeaderIdAndEpoch, NodeEndpoint
from fencepost.protocol.messages.fetch import FetchResponse
from fencepost.protocol.schema import encode


def test_an_unknown_leader_is_minus_1_in_epoch_minus_1() -> None:
    assert (LeaderIdAndEpoch().leader_id, LeaderIdAndEpoch().leader_epoch) == (-1, -1)


def test_an_endpoint_is_sent_with_its_address_and_a_rack_that_may_be_null() -> None:
    reply = FetchResponse(node_endpoints=[NodeEndpoint(1, "h", 9092, None)])
    assert bytes(encode(reply, 16)).endswith(bytes.fromhex("02 00000001 02 68 00002384 00 00"))
