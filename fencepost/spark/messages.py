"""Rows to records: which columns there are, and their values as the producer takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any, NamedTuple

ROWS_PER_CHUNK = 4096
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
COLUMNS = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS_TYPE,),
    "partition": ("int",),
}


class Chunk(NamedTuple):
    """Rows, by columns of equal length; None for a missing column."""

    values: Sequence[bytes | str | None]
    keys: Sequence[bytes | str | None] | None
    topics: Sequence[str | None] | None
    partitions: Sequence[int | None] | None
    headers: Sequence[Any] | None


@dataclass(frozen=True)
class Layout:
    """Where the columns of the records are among those of the rows.

    positions: index of each column by its name. topic: topic of all records; if given, a column `topic` is ignored.
    """

    positions: dict[str, int]
    topic: str | None

    @classmethod
    def of(cls, fields: Iterable[tuple[str, str]], topic: str | None) -> Layout:
        """Check the columns, as Spark's own sink does. fields: name and type, as Spark writes it. Raises ValueError."""
        positions = {}
        for position, (name, kind) in enumerate(fields):
            if name not in COLUMNS or (name == "topic" and topic is not None):
                continue
            if not kind.startswith(COLUMNS[name]):
                raise ValueError(
                    f"{name} attribute unsupported type {kind}. {name} must be a(n) {' or '.join(COLUMNS[name])}"
                )
            positions[name] = position
        if topic is None and "topic" not in positions:
            raise ValueError(
                "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
            )
        if "value" not in positions:
            raise ValueError("Required attribute 'value' not found")
        return cls(positions, topic)

    def chunks_of_arrow(self, batches: Iterable[Any]) -> Iterator[Chunk]:
        """From pyarrow.RecordBatch: strings are taken as their UTF-8 bytes, without being decoded."""
        import pyarrow as pa

        for batch in batches:
            if not batch.num_rows:
                continue
            columns: dict[str, Sequence[Any]] = {}
            for name, position in self.positions.items():
                column = batch.column(position)
                if name in ("key", "value") and not pa.types.is_binary(column.type):
                    column = column.cast(pa.binary())
                columns[name] = column.to_pylist()
            yield self._chunk(columns)

    def chunks_of_rows(self, rows: Iterable[Sequence[Any]]) -> Iterator[Chunk]:
        """From pyspark.sql.Row, or other tuples."""
        rows = iter(rows)
        while some := list(islice(rows, ROWS_PER_CHUNK)):
            turned = list(zip(*some, strict=True))
            yield self._chunk(
                {
                    name: [bytes(value) if isinstance(value, bytearray) else value for value in turned[position]]
                    for name, position in self.positions.items()
                }
            )

    def _chunk(self, columns: dict[str, Sequence[Any]]) -> Chunk:
        return Chunk(
            columns["value"],
            columns.get("key"),
            columns.get("topic"),
            columns.get("partition"),
            columns.get("headers"),
        )

    def is_plain(self, chunk: Chunk) -> bool:
        """Whether the rows have nothing but values and keys, and one topic: most do, and a task may write millions."""
        return chunk.partitions is None and chunk.headers is None and self.topic is not None

    def records(self, chunk: Chunk) -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
        """Topic, value, key and the other arguments of `Producer.produce`, for each row.

        Raises ValueError for a null topic.
        """
        keys = repeat(None) if chunk.keys is None else chunk.keys
        topics = (self._topic(chunk, index) for index in range(len(chunk.values)))
        more = (_more(chunk, index) for index in range(len(chunk.values)))
        return zip(topics, chunk.values, keys, more)  # noqa: B905  # the values are bounded

    def first_topic(self, chunk: Chunk) -> str:
        """The topic of a chunk's first record. Raises ValueError for a null topic."""
        return self._topic(chunk, 0)

    def _topic(self, chunk: Chunk, index: int) -> str:
        topic = self.topic if chunk.topics is None else chunk.topics[index]
        if topic is None:
            raise ValueError("null topic present in the data. Use the topic option for setting a topic.")
        return topic


def _more(chunk: Chunk, index: int) -> dict[str, Any]:
    """Partition and headers of a row, where they are not null."""
    more: dict[str, Any] = {}
    if chunk.partitions is not None and chunk.partitions[index] is not None:
        more["partition"] = chunk.partitions[index]
    if chunk.headers is not None and chunk.headers[index] is not None:
        more["headers"] = [_header(header) for header in chunk.headers[index]]
    return more


def _header(header: Any) -> tuple[str, bytes | None]:
    """From a struct of Arrow (a dict), or of a Row."""
    key, value = (header["key"], header["value"]) if isinstance(header, dict) else header
    if key is None:
        raise ValueError("null header key present in the data")
    return key, None if value is None else bytes(value)
