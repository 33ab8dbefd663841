"""The image of all topics."""

from __future__ import annotations

import pytest

from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.metadata.image import MetadataImage, TopicMetadata, collision_key

ORDERS = TopicMetadata("orders", bytes([1]) * 16, 2)
PAYMENTS = TopicMetadata("payments", bytes([2]) * 16, 3)


def test_topics_are_found_by_name_and_id_and_listed_by_name() -> None:
    image = MetadataImage()
    image.put(PAYMENTS)
    image.put(ORDERS)
    assert (image.get("orders"), image.get_by_id(PAYMENTS.topic_id)) == (ORDERS, PAYMENTS)
    assert list(image.all()) == [ORDERS, PAYMENTS]
    assert (len(image), image.partition_count) == (2, 5)


def test_a_topic_that_is_created_again_is_not_found_by_its_old_id() -> None:
    image = MetadataImage()
    image.put(ORDERS)
    again = TopicMetadata("orders", bytes([9]) * 16, 1)
    image.put(again)
    assert image.get_by_id(ORDERS.topic_id) is None
    assert image.get_by_id(again.topic_id) == again


def test_each_change_raises_the_version_and_a_removed_topic_is_gone() -> None:
    image = MetadataImage()
    versions = [image.version]
    image.put(ORDERS)
    versions.append(image.version)
    image.remove("orders")
    versions.append(image.version)
    assert versions == sorted(set(versions))
    assert (image.get("orders"), image.get_by_id(ORDERS.topic_id), list(image.all())) == (None, None, [])
    with pytest.raises(KeyError):
        image.remove("orders")


def test_names_that_differ_in_dots_and_underscores_alone_collide() -> None:
    assert collision_key("a.b") == collision_key("a_b") != collision_key("a-b")


def test_a_topic_knows_its_partitions_and_whether_it_is_internal() -> None:
    assert ORDERS.partitions() == [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert TopicMetadata(TRANSACTION_STATE_TOPIC, bytes(16), 1).is_internal
    assert not ORDERS.is_internal
