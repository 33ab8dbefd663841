"""The committed records of a topic, up to the end that it has now: the ways in which commands read whole topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from fencepost.cli.connection import client_options
from fencepost.cli.positions import Wanted, assign

POLL_MS: Final = 500


@contextmanager
def reader(bootstrap: str) -> Iterator[Any]:
    """A consumer without a group, of committed records."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        **client_options(bootstrap),
        group_id=None,
        isolation_level="read_committed",
        enable_auto_commit=False,
        allow_auto_create_topics=False,
    )
    try:
        yield consumer
    finally:
        consumer.close()


def records_of(consumer: Any, topics: Sequence[str], *, from_ms: int | None = None) -> Iterator[Any]:
    """All records that topics have now, partition after partition as they arrive. from_ms: none older, if given."""
    ends = assign(consumer, topics, Wanted(from_ms=from_ms, to_end=True), from_beginning=True)
    while any(consumer.position(place) < end for place, end in ends.items()):
        for place, records in consumer.poll(timeout_ms=POLL_MS).items():
            yield from (record for record in records if record.offset < ends[place])
