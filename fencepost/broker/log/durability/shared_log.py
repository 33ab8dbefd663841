"""The seam to an engine that keeps the end of each log where other nodes can read it, in place of this node's disk.

Without one, a flush is a sync of the local files. With one, the files are scratch: they serve reads, and are emptied at
a start. A flush then hands the engine the bytes appended since the flush before, and the bytes it has committed are
durable: the high watermark follows, and the next leader of the partition finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.storage.disk import LogFile, StorageError


class LedElsewhereError(StorageError):
    """Another node leads the partition whose end was to be committed. Nothing is wrong with the files here."""


class AppendedBytes(NamedTuple):
    """Whole batches that were appended to one segment of one log, back to back.

    topic_id:     16 bytes.
    leader_epoch: epoch in which this node leads the partition.
    segment_base: base offset of the segment.
    position:     place of the first byte in the segment's log file.
    length_bytes: number of bytes, at least 1.
    base_offset:  offset of the first record: the end of the flush before, or the segment's base.
    end_offset:   offset after the last record.
    file:         the segment's log file. It is only appended to, so the bytes may be read later; once the log has moved
                  to another node, its file is closed, and may be gone.
    """

    topic_partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    segment_base: int
    position: int
    length_bytes: int
    base_offset: int
    end_offset: int
    file: LogFile

    def content(self, start: int = 0, most_bytes: int | None = None) -> memoryview:
        """Read the bytes, or some of them from `start` on; fewer if the file is shorter. Raises StorageError."""
        left_bytes = self.length_bytes - start
        return self.file.read(self.position + start, left_bytes if most_bytes is None else min(most_bytes, left_bytes))


class SharedLog(Protocol):
    """The ends of all logs that this node leads, kept by an engine.

    logs_per_flush: the most logs of one flush.
    begin_another:  set by the flusher: begins a flush beside those that are under way, of the bytes appended since.
                    Not called if none is.
    """

    begin_another: Callable[[], None] | None

    @property
    def logs_per_flush(self) -> int: ...

    def room_after(self, produced_bytes: int) -> asyncio.Future[None] | None:
        """Note that clients have sent this many bytes to be appended. Where too many wait to be committed, returns a
        future that ends when there is room for more; it never fails."""
        ...

    def commit(self, appended: Sequence[AppendedBytes]) -> Awaitable[None]:
        """Commit the bytes of one flush, of a log in rising order; done when they outlive this node.

        Called while others are under way only after `begin_another`. Flushes are committed in the order of the calls,
        one after the other; with nothing appended one is done as soon as those before are. It retries while this
        node may lead. Raises StorageError when this node may not lead any more: by then it has resigned from all
        partitions, in the same step, so that no log goes offline. Raises StorageError with `paths`, after the rest is
        committed, if the files of some logs cannot be read, or if this node does not lead them any more, as their
        topics are deleted: it has resigned from those by then. Later flushes that are under way leave these logs out.
        """
        ...
