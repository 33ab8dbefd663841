"""CreateTopics, DeleteTopics and CreatePartitions as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.protocol.messages.golden import TOPIC_ID, assert_bytes


def test_a_topic_is_created_with_its_configs() -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="t",
                num_partitions=3,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
            )
        ],
        timeout_ms=1000,
    )
    assert_bytes(
        request,
        5,
        "02 02 74 00 00 00 03 00 01 01 02 0f 63 6c 65 61 6e 75 70 2e 70 6f 6c 69 63 79 08 63 6f 6d 70 61",
        "63 74 00 00 00 00 03 e8 00 00",
    )


def test_topics_may_be_deleted_by_id_from_version_6_on() -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=TOPIC_ID)], timeout_ms=1000)
    assert_bytes(request, 6, "02 00 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 00 00 00 03 e8 00")


def test_topics_are_deleted_by_name_before() -> None:
    request = DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1000)
    assert_bytes(request, 1, "00 00 00 02 00 01 61 00 01 62 00 00 03 e8")


def test_a_created_topic_comes_with_its_id() -> None:
    reply = CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name="t", topic_id=TOPIC_ID, error_message=None, num_partitions=3, replication_factor=1, configs=None
            )
        ]
    )
    assert_bytes(
        reply,
        7,
        "00 00 00 00 02 02 74 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 00 00 00 00 00 00 03 00 01",
        "00 00 00",
    )
