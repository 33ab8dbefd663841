"""A cluster as its replies describe it."""

from __future__ import annotations

import pytest

from fencepost.client.errors import ClusterError, RefusedError
from fencepost.client.view import Node, coordinators_of, metadata_request, view_of
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.coordinators import Coordinator, FindCoordinatorResponse
from fencepost.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def test_topics_and_partitions_are_in_order() -> None:
    partitions = [MetadataResponsePartition(partition_index=index, leader_id=1) for index in (2, 0, 1)]
    topics = [MetadataResponseTopic(name=name, partitions=partitions) for name in ("b", "a")]
    view = view_of(MetadataResponse(brokers=[MetadataResponseBroker(1, "h", 9092)], topics=topics))
    assert list(view.topics) == ["a", "b"]
    assert [one.index for one in view.topics["a"].partitions] == [0, 1, 2]
    assert view.nodes == {1: Node(1, "h", 9092)}
    assert view.cluster_id == ""


def test_all_topics_are_asked_for_or_those_named_and_none_is_created() -> None:
    assert metadata_request(None).topics is None
    request = metadata_request(["a"])
    assert [topic.name for topic in request.topics or ()] == ["a"]
    assert not request.allow_auto_topic_creation


def test_a_coordinator_is_read_from_replies_old_and_new() -> None:
    old = FindCoordinatorResponse(node_id=3, host="h", port=9092)
    new = FindCoordinatorResponse(coordinators=[Coordinator(key="k", node_id=3, host="h", port=9092)])
    assert coordinators_of(old, ["k"]) == coordinators_of(new, ["k"]) == {"k": Node(3, "h", 9092)}
    with pytest.raises(RefusedError, match="COORDINATOR_NOT_AVAILABLE"):
        coordinators_of(FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE), ["k"])


def test_a_coordinator_of_something_else_is_not_taken() -> None:
    other = FindCoordinatorResponse(coordinators=[Coordinator(key="other", node_id=3, host="h", port=9092)])
    with pytest.raises(ClusterError, match="other coordinators than it was asked for"):
        coordinators_of(other, ["k"])
