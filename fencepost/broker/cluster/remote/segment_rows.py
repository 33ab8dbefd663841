"""The seam to the metadata of remote segments: which objects hold a log below its tail, and which are garbage.

Every change is one transaction, guarded by the node's fence and by the partition's leader epoch, so a node that no
longer leads changes nothing. A name becomes garbage in the transaction that removes the last row which names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata


class RemoteLogRows(NamedTuple):
    """The stored rows of a log below its tail.

    sealed_end: offset at which the tail begins.
    cleaned_to: the offset up to which the log is compacted.
    epochs:     content of the log's `leader-epoch-checkpoint`, up to the sealed end.
    segments:   rows in rising order. The last one stays even below the log's start, as it has the producers' state.
    """

    sealed_end: int
    log_start_offset: int
    epochs: bytes
    segments: tuple[RemoteSegmentMetadata, ...]
    cleaned_to: int = 0


class Leadership(NamedTuple):
    """The right of a node to change the rows of a partition: refused unless fence and leader epoch are still these."""

    node_id: int
    fence: int
    leader_epoch: int


class LogStart(NamedTuple):
    """Where a log begins now, and how it is led.

    first_base: base offset of the first remaining segment.
    cleaned_to: the offset up to which the stored log is compacted.
    """

    leadership: Leadership
    log_start_offset: int
    first_base: int
    cleaned_to: int = 0


class RemoteLogMetadata(Protocol):
    """The metadata of all remote segments, as rows.

    Every call may raise StoreUnavailableError, also after it had its effect.
    """

    async def read(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, RemoteLogRows]:
        """Read the rows of partitions, all as of one moment. Deleted ones are left out."""
        ...

    async def replace(
        self,
        key: PartitionKey,
        leadership: Leadership,
        sealed: RemoteSegmentMetadata,
        *,
        names: Sequence[str],
        epochs: bytes,
    ) -> RemoteSegmentMetadata | None:
        """Put a segment, whose objects are stored, in place of all rows from its base to its end: of the tail, and of
        segments that were compacted into it.

        names:  names of its objects.
        epochs: leader epochs of the log, up to the sealed end.
        Returns the segment as it is stored: its leader epoch is the highest of the rows that it replaces. Returns None,
        and has done nothing, if the node does not lead the partition so any more. A call that had its effect may be
        repeated. Raises StorageError, and has done nothing, if the rows are not exactly those of the
        segment's offsets, or one of its objects is garbage.
        """
        ...

    async def raise_log_starts(self, starts: Mapping[PartitionKey, LogStart]) -> set[PartitionKey]:
        """Raise the starts of logs; objects wholly below the first remaining segment become garbage.

        Returns the partitions for which that was done: the others are led differently by now.
        """
        ...


class GarbageTable(Protocol):
    """The rows of objects that may be removed. Every call may raise StoreUnavailableError."""

    async def holds_sweep(self) -> bool:
        """Whether this node is the one that sweeps, from now on until it is closed or loses its connection."""
        ...

    async def find(self) -> int:
        """Move to the garbage the names that no row has any more: of wholly sealed flushes, and of deleted topics.
        Finishes the deletion of a topic that had no name in two passes. Returns the number of names."""
        ...

    async def due(self, grace_s: float, limit: int) -> Sequence[str]:
        """Names that have been garbage for longer than a time, by the database's clock. A name that a row has after
        all is no garbage any more, and left out."""
        ...

    async def removed(self, names: Sequence[str]) -> None:
        """Forget names whose objects are removed."""
        ...

    async def add_orphans(self, names: Sequence[str]) -> int:
        """Make objects of a listing garbage that no row names, and that none can: their uploader's fence was raised.
        Of names that do not tell their uploader, the fences of all brokers that give such names. Returns their number.
        """
        ...

    async def discard(self, names: Sequence[str]) -> int:
        """Make objects garbage that this node has uploaded, and gives to no row. Returns their number."""
        ...
