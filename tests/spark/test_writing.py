"""A task's rows at a broker: all of them once, in their order, also when they come faster than they are sent."""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
import pytest

from fencepost.spark.messages import Chunk, Layout
from fencepost.spark.writing import RecordRefused, Refused, send_all

pytestmark = pytest.mark.integration

ROWS = 1_000
QUEUE = 64
Records = list[tuple[bytes | None, bytes | None]]


def producer(fencepost: Any, **options: Any) -> Any:
    return ck.Producer(
        {
            "bootstrap.servers": fencepost.bootstrap_servers,
            "enable.idempotence": True,
            "queue.buffering.max.messages": QUEUE,
            "log_level": 0,
            **options,
        }
    )


def written(fencepost: Any, topic: str, *chunks: Chunk) -> Records:
    """What the topic has in its order, once the chunks were sent."""
    sending = producer(fencepost)
    rows = send_all(sending, Layout({"value": 0}, topic), chunks)
    assert sending.flush(30) == 0
    assert rows == sum(len(chunk.values) for chunk in chunks)
    return [(record.key, record.value) for record in fencepost.records(topic)]


def chunk(values: list[Any], keys: list[Any] | None = None) -> Chunk:
    return Chunk(values, keys, None, None, None)


def test_rows_that_fill_the_queue_are_sent_once_each_and_in_their_order(fencepost: Any) -> None:
    values = [f"{number}".encode() for number in range(ROWS)]
    found = written(fencepost, fencepost.topic("full-queue"), chunk(values[:300]), chunk(values[300:]))
    assert found == [(None, value) for value in values]


def test_each_row_keeps_its_key_when_the_queue_is_full(fencepost: Any) -> None:
    values = [None if number % 7 == 0 else f"v{number}".encode() for number in range(ROWS)]
    keys = [None if number % 5 == 0 else f"k{number}".encode() for number in range(ROWS)]
    found = written(fencepost, fencepost.topic("full-queue-with-keys"), chunk(values, keys))
    assert found == list(zip(keys, values, strict=True))


def test_rows_with_partitions_and_headers_wait_for_the_queue_as_well(fencepost: Any) -> None:
    values = [f"{number}".encode() for number in range(ROWS)]
    headers = [None if number % 3 == 0 else [{"key": "h", "value": b"1"}] for number in range(ROWS)]
    topic = fencepost.topic("full-queue-with-headers")
    found = written(fencepost, topic, Chunk(values, None, None, [0] * ROWS, headers))
    assert found == [(None, value) for value in values]


def test_a_row_in_the_middle_that_the_client_refuses_ends_it_in_words(fencepost: Any) -> None:
    refused = Refused()
    sending = producer(fencepost, **refused.configuration)
    layout = Layout({"value": 0}, fencepost.topic("refused-in-the-middle"))
    with pytest.raises(RecordRefused, match=r"a record was refused: .*too large"):
        send_all(sending, layout, [chunk([b"a", b"x" * 1_100_000, b"b"])])
    sending.flush(30)
