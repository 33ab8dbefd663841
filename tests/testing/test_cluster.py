"""Topics, offsets and groups as a test's helpers change them over the wire; `test_fixture` has the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from fencepost import Broker
from fencepost.broker.transaction.markers import LocalMarkerChannel
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transaction_admin import ListTransactionsRequest
from fencepost.testing import cluster
from fencepost.testing.errors import MisuseError, RefusedError
from fencepost.testing.results import Partition
from fencepost.testing.wire import WireClient
from tests.testing.clients import consumer, consumer_with_partitions, producer_in_transaction


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


def refuse_markers(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Each partition refuses the first markers: an end is confirmed long before it is seen."""
    send = LocalMarkerChannel.send
    left = times

    def refused_at_first(self: LocalMarkerChannel, marker: Any) -> Any:
        nonlocal left
        left -= 1
        return send(self, marker) if left < 0 else _refused(marker)

    monkeypatch.setattr(LocalMarkerChannel, "send", refused_at_first)


async def _refused(marker: Any) -> Mapping[Any, ErrorCode]:
    return dict.fromkeys(marker.partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_what_is_confirmed_is_seen_although_its_markers_come_later(
    fencepost: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fencepost.topic("orders")
    fencepost.produce("orders", "tea")
    reader = consumer_with_partitions(fencepost, "billing", "orders")
    client = producer_in_transaction(fencepost, "till", "orders", b"milk")
    client.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], reader.consumer_group_metadata(), 10)
    refuse_markers(monkeypatch, 5)
    client.commit_transaction(10)
    assert [record.value for record in fencepost.records("orders")] == [b"tea", b"milk"]
    assert fencepost.transactions() == {"till": "CompleteCommit"}

    client.begin_transaction()
    client.send_offsets_to_transaction([TopicPartition("orders", 0, 2)], reader.consumer_group_metadata(), 10)
    refuse_markers(monkeypatch, 5)
    client.commit_transaction(10)
    assert fencepost.group("billing").offsets == {Partition("orders", 0): 2}
    reader.close()


def test_an_end_that_no_marker_follows_is_not_waited_for_without_limit(
    fencepost: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fencepost.topic("orders")
    client = producer_in_transaction(fencepost, "till", "orders", b"milk")
    monkeypatch.setattr(cluster, "ENDING_S", 0.2)
    refuse_markers(monkeypatch, 1_000_000)
    client.commit_transaction(10)
    assert fencepost.records("orders") == []
    assert fencepost.transactions() == {"till": "PrepareCommit"}


def test_a_broker_that_does_not_list_transactions_gives_its_records(
    fencepost: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fencepost.produce("orders", "tea")
    call = WireClient.call

    def as_an_older_broker(self: WireClient, request: Any, *address: Any) -> Any:
        if isinstance(request, ListTransactionsRequest):
            raise MisuseError("the broker does not serve ListTransactions: use another")
        return call(self, request, *address)

    monkeypatch.setattr(WireClient, "call", as_an_older_broker)
    assert [record.value for record in fencepost.records("orders")] == [b"tea"]
