"""Topics that a group subscribes to."""

from __future__ import annotations

from fencepost.broker.group.consumer.subscriptions import compile_regex, matching_topics, metadata_hash, topic_ids
from fencepost.broker.metadata.image import MetadataImage, TopicMetadata


def image(**partitions: int) -> MetadataImage:
    made = MetadataImage()
    for number, (name, count) in enumerate(partitions.items()):
        made.put(TopicMetadata(name, bytes([number + 1]) * 16, count))
    return made


def test_topics_that_do_not_exist_have_no_ids() -> None:
    assert topic_ids(["orders", "none"], image(orders=1)) == {bytes([1]) * 16}


def test_the_hash_changes_with_partitions_and_topics_and_with_nothing_else() -> None:
    base = metadata_hash(["a", "b"], image(a=1, b=1))
    assert metadata_hash(["b", "a"], image(a=1, b=1, c=1)) == base
    assert len({base, metadata_hash(["a", "b"], image(a=2, b=1)), metadata_hash(["a"], image(a=1, b=1))}) == 3
    assert metadata_hash(["none"], image(a=1)) == 0


def test_a_pattern_matches_whole_names_that_the_client_may_see() -> None:
    topics = image(orders=1, orders_old=1, secret_orders=1)
    assert matching_topics("orders.*", topics) == {"orders", "orders_old"}
    assert matching_topics(".*orders", topics, lambda name: not name.startswith("secret")) == {"orders"}


def test_an_invalid_pattern_matches_nothing() -> None:
    assert compile_regex("(") is None
    assert matching_topics("(", image(orders=1)) == frozenset()
