"""Names of objects, below the prefix of the cluster's location.

    CLUSTER/log/TOPIC/PARTITION/BASE-OBJECT/BASE.log, .index, .timeindex, .txnindex, .snapshot
    CLUSTER/tail/OBJECT                               the bytes of a large flush

CLUSTER is the cluster's id, TOPIC the topic's id in hexadecimal digits, BASE the base offset in 20 digits, and OBJECT a
number that is made for each try to upload: no two tries have a name in common. The files of a sealed segment are named
and have the bytes as on a broker of one machine, so a copy of a partition's objects is a directory that a local broker
and Kafka's DumpLogSegments read.
"""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX = ".log", ".index", ".timeindex"
TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX = ".txnindex", ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
"""A segment without aborted transactions has no `.txnindex`. Its `.snapshot` is that of its end: see `SegmentName`."""

_CLUSTER_ID = re.compile(r"[A-Za-z0-9_\-]{1,64}")
_SEGMENT = re.compile(
    r"(?P<cluster>[^/]+)/log/(?P<topic>[0-9a-f]{32})/(?P<partition>\d+)/(?P<base>\d{20})-(?P<object>[0-9a-f]{32})/"
)
_FLUSH = re.compile(r"(?P<cluster>[^/]+)/tail/(?P<object>[0-9a-f]{32})")


class SegmentName(NamedTuple):
    """Names of the objects of one sealed segment.

    The snapshot of producers is that of the segment's end; its file is named after that offset, as on a disk.
    """

    cluster_id: str
    topic_id: bytes
    partition: int
    base_offset: int
    object_id: uuid.UUID

    @property
    def directory(self) -> str:
        """The common prefix of all its names, up to and with the last "/"."""
        return (
            f"{partition_prefix(self.cluster_id, self.topic_id, self.partition)}"
            f"{self.base_offset:020d}-{self.object_id.hex}/"
        )

    def files(self, end_offset: int, *, has_aborted: bool) -> list[str]:
        """The names of all its files. end_offset: of the segment."""
        return [self.file(suffix, end_offset) for suffix in suffixes(has_aborted=has_aborted)]

    def file(self, suffix: str, end_offset: int | None = None) -> str:
        """The name of one of its files. end_offset: of the segment, for the snapshot."""
        if suffix == SNAPSHOT_SUFFIX:
            assert end_offset is not None
            return f"{self.directory}{end_offset:020d}{suffix}"
        return f"{self.directory}{self.base_offset:020d}{suffix}"


def suffixes(*, has_aborted: bool) -> list[str]:
    """The suffixes of a segment's files."""
    return [suffix for suffix in SEGMENT_SUFFIXES if has_aborted or suffix != TRANSACTION_INDEX_SUFFIX]


def cluster_prefix(cluster_id: str) -> str:
    """The beginning of all names of a cluster."""
    assert _CLUSTER_ID.fullmatch(cluster_id), cluster_id
    return f"{cluster_id}/"


def topic_prefix(cluster_id: str, topic_id: bytes) -> str:
    """The beginning of the names of all sealed segments of a topic."""
    return f"{cluster_prefix(cluster_id)}log/{topic_id.hex()}/"


def partition_prefix(cluster_id: str, topic_id: bytes, partition: int) -> str:
    """The beginning of the names of all sealed segments of a partition."""
    return f"{topic_prefix(cluster_id, topic_id)}{partition}/"


def flushes_prefix(cluster_id: str) -> str:
    """The beginning of the names of all large flushes."""
    return f"{cluster_prefix(cluster_id)}tail/"


def flush_name(cluster_id: str, object_id: uuid.UUID) -> str:
    """The name of a large flush's object."""
    return f"{flushes_prefix(cluster_id)}{object_id.hex}"


def segment_of(name: str) -> SegmentName | None:
    """The segment that an object belongs to, or whose directory it is; None for other objects."""
    match = _SEGMENT.match(name)
    if match is None:
        return None
    return SegmentName(
        match["cluster"],
        bytes.fromhex(match["topic"]),
        int(match["partition"]),
        int(match["base"]),
        uuid.UUID(match["object"]),
    )


def flush_of(name: str) -> uuid.UUID | None:
    """The object id of a large flush; None for other objects."""
    match = _FLUSH.fullmatch(name)
    return None if match is None else uuid.UUID(match["object"])


def object_of(name: str) -> uuid.UUID | None:
    """The id of the object that a name is of; None for names that no cluster gives."""
    segment = segment_of(name)
    return flush_of(name) if segment is None else segment.object_id
