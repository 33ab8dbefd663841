"""DescribeQuorum and the requests for voters as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.quorum import (
    AddRaftVoterRequest,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
    Listener,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_a_quorum_is_asked_for_by_partition() -> None:
    request = DescribeQuorumRequest(
        topics=[DescribeQuorumTopic(topic_name="m", partitions=[DescribeQuorumPartition(partition_index=0)])]
    )
    assert_bytes(request, 0, "02 02 6d 02 00 00 00 00 00 00 00")


def test_the_port_of_a_voter_has_no_sign() -> None:
    request = AddRaftVoterRequest(
        cluster_id="c", voter_id=3, voter_directory_id=TOPIC_ID, listeners=[Listener(name="L", host="h", port=40000)]
    )
    assert_bytes(
        request,
        0,
        "02 63 00 00 00 00 00 00 00 03 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 02 4c 02 68 9c",
        "40 00 00",
    )


def test_a_broker_is_unregistered_by_its_id() -> None:
    request = UnregisterBrokerRequest(broker_id=3)
    assert_bytes(request, 0, "00 00 00 03 00")


def test_a_controller_is_unregistered_by_its_id() -> None:
    assert_bytes(UnregisterControllerRequest(controller_id=3), 0, "00 00 00 03 00")
    assert_bytes(UnregisterControllerResponse(error_code=136, error_message="no"), 0, "00 00 00 00 00 88 03 6e 6f 00")
