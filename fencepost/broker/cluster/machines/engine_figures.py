"""Figures of the engine that keeps a broker's logs, for metrics: gathered at a scrape, and not before.

The parts count as they work, and do not depend on metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class EngineFigures(NamedTuple):
    """Figures of one broker, since its start or as of now.

    flushes, flushed_bytes: counts by destination, `rows` or `objects`. flushed_rows: rows of both kinds.
    unflushed_bytes:    bytes from clients that are not committed yet.
    is_waiting:         whether a flush is being tried again, as PostgreSQL does not answer.
    lease_left_s:       time that the broker may still answer as a leader without another renewal.
    tail_bytes:         size of its tails, in PostgreSQL or in objects of flushes; as of the last pass of sealing.
    tail_budget_bytes:  beyond it, segments are sealed.
    sealed_segments, sealed_bytes:   stored as objects. fetched_segments, fetched_bytes: fetched for readers.
    fetched_blocks:     fetched for readers. block_reads, block_read_bytes: reads that blocks here have answered.
    read_replicas:      partitions that other brokers lead, and this one serves. replica_read_bytes: sent of them.
    merged_segments:    sealed segments that were merged into larger ones.
    removed_leftovers:  partitions that other brokers lead, and whose files were removed from this one's disk.
    removed_objects:    objects that no row named any more. refused_removals: those that the store refuses to remove.
    object_requests:    counts by operation (put, get, list, delete) and outcome (done, missing, failed).
    asynchronous_standbys: standbys of PostgreSQL that no commit waits for.
    take_overs:         brokers whose partitions this one has given new leaders. resignations: of this one.
    """

    flushes: Mapping[str, int]
    flushed_bytes: Mapping[str, int]
    flushed_rows: int
    unflushed_bytes: int
    is_waiting: bool
    lease_left_s: float
    tail_bytes: int
    tail_budget_bytes: int
    sealed_segments: int
    sealed_bytes: int
    fetched_segments: int
    fetched_bytes: int
    fetched_blocks: int
    block_reads: int
    block_read_bytes: int
    read_replicas: int
    replica_read_bytes: int
    merged_segments: int
    removed_leftovers: int
    removed_objects: int
    object_requests: Mapping[tuple[str, str], int]
    take_overs: int
    resignations: int
    asynchronous_standbys: int = 0
    refused_removals: int = 0
