"""The server that does the least still says what clients take for an answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.record_batch import read_header
from scripts.benchmarks.batches import BatchTemplate
from scripts.benchmarks.client import (
    Client,
    connect,
    create_topic,
    end_offsets,
    fetch_request,
    produce_request,
    require_success,
)
from scripts.benchmarks.figures import Broker
from scripts.benchmarks.limit import LimitSubject

pytestmark = pytest.mark.integration

TOPIC = "measured"


@pytest.fixture(params=[False, True], ids=["in the page cache", "on disk"])
def limit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    directory = tmp_path / "data"
    directory.mkdir()
    limit = LimitSubject(is_synced=request.param).launch(directory, {})
    try:
        connect(limit).close()
        yield limit
    finally:
        limit.kill()


@pytest.fixture
def client(limit: Broker) -> Iterator[Client]:
    with Client(limit.address) as connected:
        create_topic(connected, TOPIC, 1)
        yield connected


def batch_of(value_bytes: int) -> bytes:
    return bytes(BatchTemplate(record_bytes=value_bytes, records_count=1).batch())


def test_each_batch_has_the_next_offset(client: Client) -> None:
    produced = [require_success(client.call(produce_request(TOPIC, [(0, batch_of(100))]))) for _ in range(3)]
    assert [reply.responses[0].partition_responses[0].base_offset for reply in produced] == [0, 1, 2]
    assert end_offsets(client, TOPIC, 1, 0) == [3]


@pytest.mark.parametrize("value_bytes", [10, 1_000])
def test_a_waiting_fetch_gets_produced_records(client: Client, value_bytes: int) -> None:
    batch = batch_of(value_bytes)
    for offset in range(3):
        client.send(fetch_request(TOPIC, offset, 2**20))
        client.send(produce_request(TOPIC, [(0, batch)]))
        # Replies come in the order of requests from a broker; here the first to be ready is first.
        fetched = require_success(client.receive())
        assert require_success(client.receive()).responses[0].partition_responses[0].base_offset == offset
        records = bytes(fetched.responses[0].partitions[0].records)
        assert read_header(records).base_offset == offset
        assert records[8:] == batch[8:]


def test_a_fetch_waits_on_when_the_time_of_the_one_before_it_is_over(limit: Broker, client: Client) -> None:
    left = fetch_request("left", 0, 2**20)
    left.max_wait_ms = 50
    client.send(left)  # by a client that is gone meanwhile; here, so that it comes first
    client.send(fetch_request(TOPIC, 0, 2**20))
    over_at_s = time.monotonic() + 2 * left.max_wait_ms / 1e3
    with Client(limit.address) as producer:
        while time.monotonic() < over_at_s:
            assert end_offsets(producer, TOPIC, 1, 0) == [0]
        require_success(producer.call(produce_request(TOPIC, [(0, batch_of(100))])))
    # Where the second fetch was late, the first has been answered.
    topic = next(
        topic for _ in range(2) for topic in require_success(client.receive()).responses if topic.topic == TOPIC
    )
    assert read_header(bytes(topic.partitions[0].records)).base_offset == 0


def test_a_fetch_gets_unfetched_records_at_once(client: Client) -> None:
    require_success(client.call(produce_request(TOPIC, [(0, batch_of(100))])))
    fetched = require_success(client.call(fetch_request(TOPIC, 0, 2**20)))
    assert read_header(bytes(fetched.responses[0].partitions[0].records)).base_offset == 0


def test_the_same_request_is_answered_again_with_its_own_correlation_id(client: Client) -> None:
    commit = OffsetCommitRequest(
        group_id="measured",
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(committed_offset=7)])],
    )
    first, again = (require_success(client.call(commit)) for _ in range(2))
    assert first == again
    assert first.topics[0].name == TOPIC
