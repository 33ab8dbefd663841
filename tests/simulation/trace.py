"""What passed between clients and brokers, in order: for checkers, and for people who look into a failing seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import (
    HEADER_BYTES,
    RecordBatch,
    iterate_batches,
    read_end_transaction_marker,
    read_records,
)
from fencepost.protocol.schema import ZERO_UUID


def brief(message: Any, *, is_whole: bool = True) -> str:
    """A message in as few words as still tell everything but the bytes: fields that differ from their defaults, records
    as producers, sequences, offsets and values.
    """
    if isinstance(message, list):
        return f"[{', '.join(brief(part, is_whole=False) for part in message)}]"
    if isinstance(message, bytes | bytearray | memoryview):
        return _brief_batches(bytes(message))
    given = getattr(type(message), "__slots__", None)
    if given is None or isinstance(message, str | int):
        return repr(message)
    fields = []
    for name in given:
        value = getattr(message, name)
        if name in _UNINTERESTING or value in _NOTHING or (value == 0 and name not in _COUNTED_FROM_0):
            continue
        shown = ErrorCode(value).name if name.endswith("error_code") else brief(value, is_whole=False)
        fields.append(f"{name}={shown}")
    return f"{type(message).__name__ if is_whole else ''}({' '.join(fields)})"


_NOTHING: tuple[object, ...] = (-1, None, "", [], b"", ZERO_UUID, 2**63 - 1)
_COUNTED_FROM_0 = frozenset(
    {"producer_id", "producer_epoch", "partition", "index", "partition_index", "base_offset", "fetch_offset", "offset"}
)
_UNINTERESTING = frozenset(
    {
        "current_leader",
        "diverging_epoch",
        "log_append_time_ms",
        "max_wait_ms",
        "metadata",
        "min_bytes",
        "replica_directory_id",
        "replica_state",
        "snapshot_id",
        "throttle_time_ms",
    }
)


def _brief_batches(content: bytes) -> str:
    if len(content) < HEADER_BYTES:
        return content.hex()
    try:
        return " ".join(_brief_batch(batch) for batch in iterate_batches(content)) or content.hex()
    except DecodeError:
        return f"<{len(content)} bytes>"


def _brief_batch(batch: RecordBatch) -> str:
    header = batch.header
    producer = f"{header.producer_id}/{header.producer_epoch}"
    marker = read_end_transaction_marker(batch)
    if marker is not None:
        return f"<{header.base_offset}: {producer} {'COMMIT' if marker.committed else 'ABORT'}>"
    values = ",".join(repr(record.value)[2:-1] for record in read_records(batch))
    kind = "transactional " if header.is_transactional else ""
    return f"<{header.base_offset}: {kind}{producer} sequence {header.base_sequence} {values}>"


@dataclass(eq=False)
class Exchange:
    """One request and what became of it. response: None while there is none, and for ever when the connection broke."""

    number: int
    client: str
    node_id: int
    request: Any
    version: int
    sent_s: float
    response: Any = None
    answered_s: float | None = None

    def answered(self, response: Any, now_s: float) -> None:
        self.response = response
        self.answered_s = now_s

    def __str__(self) -> str:
        answer = "no answer" if self.answered_s is None else f"{self.answered_s:.4f} {brief(self.response)}"
        return f"{self.sent_s:9.4f} {self.client} -> {self.node_id}: v{self.version} {brief(self.request)} => {answer}"


@dataclass(frozen=True)
class Event:
    """Something that happened to a broker or the network, such as a crash."""

    number: int
    at_s: float
    text: str

    def __str__(self) -> str:
        return f"{self.at_s:9.4f} {self.text}"


@dataclass
class Trace:
    """Everything so far. entries: in the order in which requests were sent and events happened."""

    time: Any
    entries: list[Exchange | Event] = field(default_factory=list)

    def sent(self, client: str, node_id: int, request: Any, version: int) -> Exchange:
        exchange = Exchange(len(self.entries), client, node_id, request, version, self.time())
        self.entries.append(exchange)
        return exchange

    def happened(self, text: str) -> None:
        self.entries.append(Event(len(self.entries), self.time(), text))

    @property
    def exchanges(self) -> list[Exchange]:
        return [entry for entry in self.entries if isinstance(entry, Exchange)]
