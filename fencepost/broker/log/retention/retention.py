"""Retention rules: which segments are deleted.

Source: Kafka's UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.segment import Segment

UNLIMITED = -1


def expired_count(
    segments: LogSegments, config: LogConfig, *, log_start_offset: int, stable_offset: int, now_ms: int
) -> int:
    """Count the oldest segments that may go: below the log start, too old, or too much.

    stable_offset: the last stable offset. Nothing that reaches beyond it expires: a transaction that is open for long,
        as in a two-phase commit, must not lose its records before its outcome is known. Kafka stops at the high
        watermark.
    Counts the active segment only when it is the last that is left, holds records, and all of them are too old or
    `retention.bytes` is 0 (KAFKA-16385); the caller rolls it first. Raises StorageError.
    """
    excess_bytes = segments.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
    deletes = "delete" in config.cleanup_policy
    count = 0
    for segment in segments:
        is_active = segment is segments.active
        end_offset = segment.next_offset if is_active else segments.next_base_offset(segment) or segment.next_offset
        is_below_start = end_offset <= log_start_offset and not is_active
        if (end_offset > stable_offset and not is_below_start) or (is_active and segment.size_bytes == 0):
            break
        is_too_much = deletes and excess_bytes >= segment.size_bytes > 0
        if not (is_below_start or is_too_much or (deletes and is_too_old(segment, config, now_ms))):
            break
        excess_bytes -= segment.size_bytes
        count += 1
    return count


def deletable_count(segments: LogSegments, count: int, deletable_end: int) -> int:
    """Count those of the `count` oldest segments that end at or below an offset. The active one never does."""
    for slot, segment in enumerate(segments):
        end_offset = segments.next_base_offset(segment)
        if slot >= count or end_offset is None or end_offset > deletable_end:
            return slot
    return count


def is_too_old(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    """Whether all records of a segment are past `retention_ms`: by their timestamps, else by its last write.

    Raises StorageError.
    """
    return config.retention_ms != UNLIMITED and segment.newest_record_ms < now_ms - config.retention_ms
