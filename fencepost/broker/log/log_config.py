"""Settings of one log, with Kafka's names, units and defaults. The settings table in `broker.config` fills them from
topic configs."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.compression import MAXIMUM_DECOMPRESSED_BYTES

MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Source: Kafka's LogConfig. One deviation: `flush_interval_messages` is 1, so acknowledged means on disk."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    errors_deadletterqueue_group_enable: bool = False
    file_delete_delay_ms: int = 60_000
    flush_interval_messages: int = 1  # 1: every acknowledgement waits for the disk; larger: the page cache is enough
    flush_ms: int = MAX_INT64  # if the page cache is enough: longest wait of records for the disk
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = MAX_INT64
    max_decompressed_message_bytes: int = 2**31 - 9  # of one record in a compressed batch
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    producer_id_expiration_ms: int = 86_400_000
    transaction_partition_verification_enable: bool = True
    max_decompressed_bytes: int = MAXIMUM_DECOMPRESSED_BYTES  # of a batch that a producer sends

    @property
    def is_durable(self) -> bool:
        """Whether every acknowledgement waits for the disk. In a dead-letter topic each does: the delivery of a record
        ends with the acknowledgement of its copy."""
        return self.flush_interval_messages == 1 or self.errors_deadletterqueue_group_enable

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def uses_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


def roll_age_ms(topic_partition: TopicPartition, config: LogConfig) -> int:
    """Return the age at which this partition's active segment is rolled. Source: Kafka's LogSegment.shouldRoll.

    The jitter is fixed per partition, so that partitions created together do not all roll at once.
    """
    age_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms
    if config.segment_jitter_ms <= 0:
        return age_ms
    return age_ms - zlib.crc32(str(topic_partition).encode()) % min(config.segment_jitter_ms, age_ms)
