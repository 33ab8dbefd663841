"""Recorder of client operations as a history, one JSON object per line; docs/history.md has the format.

    history = HistoryWriter.open("history.jsonl")
    application = history.client("application-1", transactional_id="application", isolation_level="read_committed")
    application.begin()
    sending = application.send("orders", "value-17")          # before the producer gets the record
    sending.ok(partition=0, offset=4)                         # in its delivery callback
    committing = application.commit()                         # before commitTransaction
    committing.ok()                                           # or .fail(error) or .unknown(error)

An invocation must be recorded before the request can leave, and an outcome after it is known: the checker believes the
order of the lines.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

IsolationLevel: TypeAlias = Literal["read_committed", "read_uncommitted"]
PartitionOffset: TypeAlias = tuple[str, int, int]
PartitionPosition: TypeAlias = tuple[str, int, int | None]
ReadRecord: TypeAlias = tuple[str, int, int, str | None]
OffsetRange: TypeAlias = tuple[str, int, int, int]


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class HistoryWriter:
    """Appends operations to a history, from any thread.

    sink:   stores one whole line of bytes, newline included, before it returns; a simulation passes `lines.append`.
    now_ms: the recorder's clock. Lines are stamped and stored under one lock, so that their order is its order.
    """

    def __init__(self, sink: Callable[[bytes], object], now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._sink = sink
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._call_numbers = itertools.count()
        self._file_descriptor: int | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], now_ms: Callable[[], int] = wall_clock_ms) -> HistoryWriter:
        """Open a history that appends to a file, which is created if it does not exist.

        A line is one write(2) in append mode: it survives a kill -9 of this process, and several processes may share
        the file. Raises OSError if the file cannot be written.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

        def write(line: bytes) -> None:
            remaining = memoryview(line)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]

        history = cls(write, now_ms)
        history._file_descriptor = descriptor
        return history

    def close(self) -> None:
        """Close the file, if there is one; no line was pending."""
        with self._lock:
            if self._file_descriptor is not None:
                os.close(self._file_descriptor)
                self._file_descriptor = None

    def client(
        self,
        name: str,
        *,
        transactional_id: str | None = None,
        group_id: str | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        idempotent: bool = True,
        acks: int = -1,
    ) -> ClientHistory:
        """Record that the client `name` starts, or restarts: open operations of its last session stay unknown.

        acks: the producer's setting, -1 for all.
        """
        client = ClientHistory(self, name)
        client.record(
            "start",
            "ok",
            transactional_id=transactional_id,
            group_id=group_id,
            isolation_level=isolation_level,
            idempotent=idempotent,
            acks=acks,
        )
        return client

    def topic(self, name: str, *, compacted: bool) -> None:
        """Record whether a topic is compacted; in one that is, missing records are no anomaly."""
        self.append("", "topic", "ok", topic=name, compacted=compacted)

    def append(self, client: str, operation: str, outcome: str, **fields: Any) -> None:
        """Append one line; fields that are None are omitted."""
        present = {name: value for name, value in fields.items() if value is not None}
        with self._lock:
            line = {"time_ms": self._now_ms(), "client": client, "operation": operation, "type": outcome, **present}
            self._sink(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")

    def next_call_number(self) -> int:
        """A number that no other call of this writer has."""
        return next(self._call_numbers)


class PendingCall:
    """An operation that was invoked and whose outcome is still to be recorded: `ok` of the subclass, `fail`, `unknown`,
    or none of them, which means unknown.
    """

    def __init__(self, client: ClientHistory, operation: str, **fields: Any) -> None:
        self._client = client
        self._operation = operation
        self._number = client.next_call_number()
        client.record(operation, "invoke", call=self._number, **fields)

    def fail(self, error: str) -> None:
        """Record that it certainly had no effect and never will."""
        self._completed("fail", error=error)

    def unknown(self, error: str) -> None:
        """Record that it may have taken effect, or may still: a time-out, a lost connection, a fenced commit."""
        self._completed("unknown", error=error)

    def _completed(self, outcome: str, **fields: Any) -> None:
        self._client.record(self._operation, outcome, call=self._number, **fields)


class Call(PendingCall):
    """An operation whose outcome has no fields."""

    def ok(self) -> None:
        """Record that it certainly took effect."""
        self._completed("ok")


class SendCall(PendingCall):
    """A send whose outcome is pending."""

    def ok(self, partition: int | None = None, offset: int | None = None) -> None:
        """Record the acknowledgement. The partition is required unless the invocation named it; the offset may be None
        if the producer does not report it.
        """
        self._completed("ok", partition=partition, offset=offset)


class ReadCall(PendingCall):
    """A poll, or the final read of some ranges of offsets."""

    def ok(self, records: Iterable[ReadRecord]) -> None:
        """records: (topic, partition, offset, value), in the order in which the consumer gave them."""
        self._completed("ok", records=list(records))


class OffsetsCall(PendingCall):
    """A fetch of a group's committed offsets."""

    def ok(self, offsets: Iterable[PartitionPosition]) -> None:
        """offsets: (topic, partition, committed offset or None if nothing is committed)."""
        self._completed("ok", offsets=list(offsets))


class ClientHistory:
    """Operations of one client: a producer, a consumer, or both in one application."""

    def __init__(self, history: HistoryWriter, name: str) -> None:
        self._history = history
        self.name = name

    def record(self, operation: str, outcome: str, **fields: Any) -> None:
        """Append one line of this client."""
        self._history.append(self.name, operation, outcome, **fields)

    def next_call_number(self) -> int:
        """A number that no other call has."""
        return self._history.next_call_number()

    def begin(self) -> None:
        """Record that a transaction begins; sends and offsets belong to it until it ends."""
        self.record("begin", "ok")

    def send(self, topic: str, value: str, partition: int | None = None, inputs: Sequence[str] = ()) -> SendCall:
        """Record that a record is about to be sent.

        value:  unique among all sends of the history, also when the application repeats its work.
        inputs: values of the records that this one was made from, in a consume-transform-produce application.
        """
        return SendCall(self, "send", topic=topic, partition=partition, value=value, inputs=list(inputs) or None)

    def send_offsets(self, group_id: str, offsets: Iterable[PartitionOffset], inputs: Sequence[str] = ()) -> Call:
        """Record that offsets are about to be added to the transaction.

        inputs: values of records that this transaction processes, and that none of its sends names.
        """
        return Call(self, "send_offsets", group_id=group_id, offsets=list(offsets), inputs=list(inputs) or None)

    def commit(self) -> Call:
        """Record that the transaction is about to be committed."""
        return Call(self, "commit")

    def abort(self) -> Call:
        """Record that the transaction is about to be aborted."""
        return Call(self, "abort")

    def commit_offsets(self, group_id: str, offsets: Iterable[PartitionOffset]) -> Call:
        """Record that a consumer is about to commit offsets outside transactions."""
        return Call(self, "commit_offsets", group_id=group_id, offsets=list(offsets))

    def fetch_offsets(self, group_id: str) -> OffsetsCall:
        """Record that a group's committed offsets are about to be fetched."""
        return OffsetsCall(self, "fetch_offsets", group_id=group_id)

    def final_offsets(self, group_id: str) -> OffsetsCall:
        """As `fetch_offsets`, once all clients are done: committed offsets must be there."""
        return OffsetsCall(self, "final_offsets", group_id=group_id)

    def assign(self, partitions: Iterable[PartitionPosition]) -> None:
        """Record that a rebalance or the application assigned partitions: (topic, partition, position or None if
        unknown).
        """
        self.record("assign", "ok", partitions=list(partitions))

    def seek(self, partitions: Iterable[PartitionPosition]) -> None:
        """Record that the application or `auto.offset.reset` set positions: (topic, partition, position or None)."""
        self.record("seek", "ok", partitions=list(partitions))

    def poll(self) -> ReadCall:
        """Record that the consumer is about to be polled; a poll without records may be omitted."""
        return ReadCall(self, "poll")

    def polled(self, records: Iterable[ReadRecord]) -> None:
        """Record the records of a poll without a recorded invocation: (topic, partition, offset, value)."""
        self.record("poll", "ok", records=list(records))

    def final_read(self, ranges: Iterable[OffsetRange]) -> ReadCall:
        """Record that all records of these ranges are about to be read, once all clients are done.

        ranges: (topic, partition, start offset, end offset), the end exclusive: the log start offset and the log end
        offset, or a part of it per call, if the log does not fit into one line.
        """
        return ReadCall(self, "final_read", ranges=list(ranges))
