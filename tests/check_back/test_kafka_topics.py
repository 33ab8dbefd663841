"""The check-back's topics in a cluster, over the client of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fencepost import Broker
from fencepost.check_back.kafka_topics import KafkaJournal, KafkaRecords, create_topic
from fencepost.check_back.ports import Unavailable
from fencepost.check_back.question import LatestRecord, ResolverUnreachable
from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC, Entry
from fencepost.client.cluster import Cluster
from fencepost.client.producing import produce
from fencepost.client.session import ClientOptions
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.record_batch import Record, build_batch
from fencepost.two_phase import Coordinator
from tests.support.open_transactions import open_transactions


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def cluster_of(broker: Broker) -> Cluster:
    return Cluster([(broker.host, broker.port)], ClientOptions())


async def test_the_journal_creates_its_topics_and_reads_on_where_it_was(broker: Broker) -> None:
    journal = KafkaJournal(cluster_of(broker))
    assert await journal.read_state() == {}
    await journal.write([Entry(STATE_TOPIC, "a", {"n": 1}), Entry(AUDIT_TOPIC, "t", {}), Entry(STATE_TOPIC, "b", None)])
    assert await journal.read_state() == {"a": b'{"n":1}', "b": None}
    await journal.write([Entry(STATE_TOPIC, "a", None)])
    assert await journal.read_state() == {"a": None}
    await journal.close()
    assert [record.key for record in broker.records(AUDIT_TOPIC)] == [b"t"]


async def test_a_topic_that_exists_is_not_created_again(broker: Broker) -> None:
    cluster = cluster_of(broker)
    for _ in range(2):
        await create_topic(cluster, STATE_TOPIC)
    cluster.close()


async def test_the_latest_record_under_a_key_is_followed(broker: Broker) -> None:
    records = KafkaRecords(cluster_of(broker), 60)
    assert await records.latest("decisions", b"k") is None
    broker.topic("decisions")
    writer = cluster_of(broker)
    (leader,) = (await writer.view()).nodes
    assert await records.latest("decisions", b"k") is None
    for value in (b"commit", None):
        await produce(writer, "decisions", 0, leader, b"k", value)
        await produce(writer, "decisions", 0, leader, b"other", b"abort")
        first, second = await asyncio.gather(*(records.latest("decisions", b"k") for _ in range(2)))
        assert isinstance(first, LatestRecord)
        assert first == second
        assert (first.value, first.is_append_time) == (value, False)
    writer.close()
    await records.close()


async def test_an_open_transaction_keeps_the_decisions_behind_it_unknown(broker: Broker) -> None:
    broker.topic("decisions")
    (token,) = open_transactions(broker.host, broker.port, "decisions", ["till"])
    batch = build_batch(
        [Record(0, 0, b"k", b"commit")],
        producer_id=token.producer_id,
        producer_epoch=token.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    written = [TopicProduceData("decisions", partition_data=[PartitionProduceData(records=bytes(batch))])]
    cluster = cluster_of(broker)
    await cluster.send(ProduceRequest(transactional_id="till", acks=-1, timeout_ms=60_000, topic_data=written))
    impatient, patient = KafkaRecords(cluster, 0.3), KafkaRecords(cluster, 60)
    with pytest.raises(ResolverUnreachable, match="an open transaction may be in the way"):
        await impatient.latest("decisions", b"k")
    with Coordinator(broker.bootstrap_servers) as coordinator:
        coordinator.complete(token, commit=False)
    assert await patient.latest("decisions", b"k") is None
    await patient.close()


async def test_a_cluster_that_is_gone_is_unavailable_until_it_is_back(broker: Broker) -> None:
    journal = KafkaJournal(cluster_of(broker))
    await journal.write([Entry(STATE_TOPIC, "a", {"n": 1})])
    broker.stop()
    with pytest.raises(Unavailable, match=f"no broker answers at {broker.host}|closed the connection"):
        await journal.read_state()
    await journal.close()
