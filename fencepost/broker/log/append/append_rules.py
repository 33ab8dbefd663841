"""Rules of a log's config for each append, computed once per config and not per batch."""

from __future__ import annotations

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_config import LogConfig, roll_age_ms
from fencepost.broker.log.segment.offset_index import ENTRY_BYTES
from fencepost.broker.log.segment.segment import MAX_POSITION, SegmentLimits
from fencepost.protocol.compression import DEFAULT_LEVELS, Codec
from fencepost.protocol.record_validation import RecordRules


class AppendRules:
    """The rules of one config, for one partition.

    maximum_bytes, segment_bytes: bounds on a batch; `largest_batch_bytes` is the smaller one.
    codec, level: compression of batches; without a codec they stay as the producer sent them.
    compressed_at_once_bytes: the most decompressed bytes that are compressed in one step of the event loop.
    """

    __slots__ = (
        "codec",
        "compressed_at_once_bytes",
        "config",
        "flush_interval_messages",
        "is_durable",
        "largest_batch_bytes",
        "level",
        "maximum_bytes",
        "record_rules",
        "segment_bytes",
        "segment_limits",
        "uses_log_append_time",
        "verifies_transactions",
    )

    def __init__(self, config: LogConfig, topic_partition: TopicPartition) -> None:
        self.config = config
        self.maximum_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.largest_batch_bytes = min(self.maximum_bytes, self.segment_bytes)
        self.uses_log_append_time = config.uses_log_append_time
        self.codec = _CODECS[config.compression_type]
        self.level = _level(config, self.codec)
        self.compressed_at_once_bytes = _compressed_at_once_bytes(self.codec, self.level)
        self.record_rules = RecordRules(
            requires_keys=config.is_compacted,
            uses_log_append_time=config.uses_log_append_time,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            maximum_decompressed_bytes=config.max_decompressed_bytes,
            maximum_record_bytes=config.max_decompressed_message_bytes,
        )
        self.segment_limits = SegmentLimits(
            size_bytes=min(config.segment_bytes, MAX_POSITION),
            index_entries_count=config.segment_index_bytes // ENTRY_BYTES,
            age_ms=roll_age_ms(topic_partition, config),
        )
        self.verifies_transactions = config.transaction_partition_verification_enable
        self.is_durable = config.is_durable
        self.flush_interval_messages = config.flush_interval_messages


_CODECS: dict[str, Codec | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def _level(config: LogConfig, codec: Codec | None) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
    return None


_COMPRESSED_AT_ONCE_BYTES = {
    Codec.NONE: 1024 * 1024,
    Codec.SNAPPY: 1024 * 1024,
    Codec.LZ4: 512 * 1024,
    Codec.ZSTD: 256 * 1024,
    Codec.GZIP: 64 * 1024,
}
"""At the default levels: compressing this much takes 4 ms at most."""
_THOROUGHLY_COMPRESSED_AT_ONCE_BYTES = 16 * 1024


def _compressed_at_once_bytes(codec: Codec | None, level: int | None) -> int:
    if codec is None:
        return 0
    is_default = level is None or level == DEFAULT_LEVELS.get(codec)
    return _COMPRESSED_AT_ONCE_BYTES[codec] if is_default else _THOROUGHLY_COMPRESSED_AT_ONCE_BYTES
