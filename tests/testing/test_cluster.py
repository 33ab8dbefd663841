"""Topics, offsets and groups as a test's helpers change them over the wire; `test_fixture` has the rest."""

from __future__ import annotations

import pytest

from fencepost import Broker
from fencepost.testing.errors import MisuseError, RefusedError
from fencepost.testing.results import Partition
from tests.testing.clients import consumer


def test_a_deleted_topic_is_gone_with_its_records_and_may_be_created_again(fencepost: Broker) -> None:
    fencepost.topic("orders", partitions=2)
    fencepost.produce("orders", "tea")
    fencepost.delete_topic("orders")
    assert fencepost.topics() == {}
    with pytest.raises(MisuseError, match="there is no topic 'orders'"):
        fencepost.delete_topic("orders")
    fencepost.topic("orders")
    assert fencepost.records("orders") == []


def test_a_group_reads_from_the_offset_that_was_set(fencepost: Broker) -> None:
    fencepost.produce("orders", "tea", "milk")
    fencepost.set_offset("billing", "orders", 1)
    assert fencepost.groups() == {"billing": "Empty"}
    assert fencepost.group("billing").offsets == {Partition("orders", 0): 1}
    reader = consumer(fencepost, "billing", "orders")
    message = reader.poll(30)
    assert message is not None
    assert message.value() == b"milk"
    with pytest.raises(RefusedError) as raised:
        fencepost.set_offset("billing", "orders", 0)
    assert raised.value.error == "UNKNOWN_MEMBER_ID"
    reader.close()


def test_an_offset_of_a_partition_that_does_not_exist_is_refused(fencepost: Broker) -> None:
    fencepost.topic("orders")
    with pytest.raises(MisuseError, match="topic 'orders' has no partition 1: it has 1"):
        fencepost.set_offset("billing", "orders", 0, partition=1)
    with pytest.raises(MisuseError, match="did you mean 'orders'"):
        fencepost.set_offset("billing", "order", 0)
    assert fencepost.groups() == {}
