"""The seam to the store of the tails: the ends of all logs, as rows that one statement commits for a whole flush.

A flush is guarded by its node's fence: a number in a row of the node's own, which a take-over raises. The guard locks
that row until the flush is committed, so a flush is either seen by the take-over, or refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from fencepost.broker.cluster.objects.object_ids import Uploader
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.storage.disk import StorageError

NO_OBJECTS: Final[Mapping[UUID, int]] = MappingProxyType({})


class StoreUnavailableError(Exception):
    """The store did not answer, or the connection to it is lost: whether the call had an effect is unknown.

    The message has the report of the store or the network, without credentials.
    """


class PartitionKey(NamedTuple):
    """A partition, by which rows are found. topic_id: of 16 bytes."""

    topic_id: bytes
    partition: int


class TailRow(NamedTuple):
    """Bytes that one flush appended to one segment of one partition: whole batches, back to back.

    position:        position of the first byte in the segment's log file.
    base_offset:     offset of the first record. end_offset: offset after the last.
    leader_epoch:    epoch of the leader that wrote it.
    content:         the bytes; None if they are in an object.
    object_id:       object of a large flush, which has them from `object_position` on.
    checksum:        SHA-256 of the bytes in the object; None in rows of versions without checksums.
    """

    key: PartitionKey
    segment_base: int
    position: int
    length_bytes: int
    base_offset: int
    end_offset: int
    leader_epoch: int
    content: bytes | memoryview | None
    object_id: UUID | None = None
    object_position: int = 0
    checksum: bytes | None = None


class FlushId(NamedTuple):
    """Identity of a flush: the node, the fence under which it flushes, and a number that rises with each flush."""

    node_id: int
    fence: int
    sequence: int


class PartitionToRestore(NamedTuple):
    """A partition whose sealed part is restored. directory: an absolute path."""

    key: PartitionKey
    directory: str


class ConflictError(Exception):
    """Rows of another flush hold some of the offsets: two nodes have led the partition at a time."""


class NotLedError(Exception):
    """Rows of a flush were left out: their topics are deleted, or another node leads them. The others are committed.

    keys: the partitions that were left out. A topic that was created again under its name has another id.
    """

    def __init__(self, keys: Collection[PartitionKey]) -> None:
        super().__init__(f"{len(keys)} partitions are not led by this node any more")
        self.keys = keys


class TailStore(Protocol):
    """The rows of all tails. Every call may raise StoreUnavailableError; the next one connects again."""

    async def commit(
        self, flush: FlushId, rows: Sequence[TailRow], *, object_sizes: Mapping[UUID, int] = NO_OBJECTS
    ) -> bool:
        """Commit a flush of at least one row, all or nothing, in one statement guarded by the fence.

        object_sizes: bytes of each object that the rows point into; they are recorded with the rows.
        Returns False, and changes nothing, if the node's fence is not the flush's any more. A flush that was
        committed before is not committed twice: the call then returns True. Raises ConflictError; NotLedError.
        """
        ...

    async def is_committed(self, flush: FlushId, rows: Sequence[TailRow]) -> bool:
        """Whether an earlier `commit` of these rows, whose outcome is unknown, had an effect. Raises NotLedError."""
        ...

    def read(self, keys: Sequence[PartitionKey]) -> AsyncIterator[TailRow]:
        """Read the tails of partitions that no other node leads any more: all rows of a partition together, in rising
        order of segment and position. Rows that follow each other may come as one."""
        ...


class FlushObjects(Protocol):
    """Objects that hold the bytes of large flushes."""

    async def put(self, uploader: Uploader, contents: Sequence[bytes | memoryview]) -> UUID:
        """Store the contents, back to back, as a new object; retries, each time with a name of its own."""
        ...

    def abandon(self, object_ids: Iterable[UUID]) -> None:
        """Let objects become garbage that no row names, and none will."""
        ...

    async def get(self, object_id: UUID, position: int, length_bytes: int, checksum: bytes | None) -> bytes:
        """Read bytes of an object. Raises StorageError if it is missing or too short, or holds other bytes."""
        ...


class RestoredRemoteLog(NamedTuple):
    """The sealed part of a log.

    sealed_end:       offset at which the tail begins.
    log_start_offset: below it, all is deleted. It may be in the tail.
    segments:         up to the sealed end, in rising order.
    """

    sealed_end: int = 0
    log_start_offset: int = 0
    segments: Sequence[RemoteSegmentMetadata] = ()


class RemoteLogSource(Protocol):
    """The sealed segments of logs, which a new leader needs beside the tails."""

    async def restore(
        self, wanted: Mapping[TopicPartition, PartitionToRestore]
    ) -> Mapping[TopicPartition, RestoredRemoteLog | StorageError]:
        """Write the files of sealed segments that opening the logs needs into the directories, which exist.

        Partitions that the store does not have are left out. Returns a StorageError for one of which an object cannot
        be read now, is missing or holds other bytes, or for which the disk fails: the others do not wait for it. Raises
        StoreUnavailableError if the rows cannot be read.
        """
        ...


class Tenure(Protocol):
    """The tenure of a node: its fence and its lease, as the node knows them.

    node_id: id of this node.
    fence:   number under which it flushes.
    """

    @property
    def node_id(self) -> int: ...

    @property
    def fence(self) -> int: ...

    def is_held(self) -> bool:
        """Whether the node's lease is certainly still in force: until its end, no other node leads its partitions.

        Compares the monotonic clock now, so that a process which was stopped knows at once. A lease that has lapsed may
        be held again later, if no other node has taken over.
        """
        ...

    def resign(self, reason: str) -> None:
        """Stop leading all partitions, in this step, as another node has raised the fence; the node then starts again
        under a new one. Nothing happens if it has resigned already."""
        ...

    def resign_from(self, keys: Collection[PartitionKey]) -> None:
        """Stop leading these partitions, in this step, because the store reports that this node does not lead them."""
        ...
