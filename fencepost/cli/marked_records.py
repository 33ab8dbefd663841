"""`consume --markers`: all that a log holds, with how each record stands: committed, aborted, open; and the markers."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.positions import Start, Wanted, checked_partitions, matching_topics
from fencepost.cli.read_values import refuse_formats
from fencepost.cli.records import fields_of, to_bytes

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster
    from fencepost.console.reading.topics import PartitionState
    from fencepost.console.record_marks import ShownRecord

ROWS_PER_READ = 2_000


class _Record(NamedTuple):
    """A record as a client's consumer has it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def print_marked(bootstrap: str, names: Sequence[str], wanted: Wanted, most: int | None, *, as_json: bool) -> int:
    """Print up to the end that each partition has now, one partition after another; returns the number of rows."""
    refuse_formats("--markers")
    write = _write_json if as_json else _write_text

    async def run(cluster: Cluster) -> int:
        count = 0
        async for partition, row in _rows(cluster, names, wanted):
            write(partition, row)
            count += 1
            if count == most:
                break
        return count

    return ask_cluster(bootstrap, run)


async def _rows(
    cluster: Cluster, names: Sequence[str], wanted: Wanted
) -> AsyncIterator[tuple[PartitionState, ShownRecord]]:
    from fencepost.console.reading.records import offset_at_time, read_page
    from fencepost.console.reading.topics import read_partition
    from fencepost.console.record_marks import Gap

    view = await cluster.view()
    for topic in matching_topics(view.topics, names):
        existing = [partition.index for partition in view.topics[topic].partitions]
        for index in checked_partitions(topic, existing, wanted.partitions):
            partition = await read_partition(cluster, topic, index)
            if partition.error is not None:
                raise click.ClickException(f"{partition.name} does not answer: {partition.error}")
            end = partition.high_watermark or 0
            position: int | None = (wanted.start or Start()).within(partition.start or 0, end)
            if wanted.from_ms is not None:
                position = await offset_at_time(cluster, partition, wanted.from_ms)
            if wanted.to_ms is not None:
                end = await offset_at_time(cluster, partition, wanted.to_ms)
            while position is not None and position < end:
                page = await read_page(cluster, partition, position, rows=ROWS_PER_READ, only_committed=False)
                for row in page.rows:
                    if not isinstance(row, Gap) and row.offset < end:
                        yield partition, row
                position = page.next_offset


def _write_text(partition: PartitionState, row: ShownRecord) -> None:
    if row.record is None:
        outcome = {True: "commit", False: "abort", None: "control"}[row.committed]
        text = f"{partition.name} @{row.offset} {row.mark.value}: {outcome} of producer {_pair(row)}"
        click.echo(printable(text))
        return
    line = to_bytes(_record(partition, row), keys=True).decode("utf-8", "backslashreplace")
    where, _, rest = line.partition(f"@{row.offset} ")
    mark = row.mark.value + (f" of producer {_pair(row)}" if row.producer_id >= 0 else "")
    click.echo(printable(f"{where}@{row.offset} {mark}: {rest}"))


def _write_json(partition: PartitionState, row: ShownRecord) -> None:
    document: dict[str, Any] = fields_of(_record(partition, row))
    document["mark"] = row.mark.value
    document["producer_id"] = row.producer_id if row.producer_id >= 0 else None
    document["producer_epoch"] = row.producer_epoch if row.producer_id >= 0 else None
    if row.record is None:
        document["outcome"] = {True: "commit", False: "abort", None: None}[row.committed]
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def _record(partition: PartitionState, row: ShownRecord) -> _Record:
    record = row.record
    place = partition.topic, partition.index, row.offset, row.timestamp_ms
    return _Record(*place, None, None, ()) if record is None else _Record(*place, *_contents(record))


def _contents(record: Any) -> tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]:
    as_bytes: Callable[[Any], bytes | None] = lambda content: None if content is None else bytes(content)  # noqa: E731
    return as_bytes(record.key), as_bytes(record.value), [(name, as_bytes(value)) for name, value in record.headers]


def _pair(row: ShownRecord) -> str:
    return f"{row.producer_id}:{row.producer_epoch}"
