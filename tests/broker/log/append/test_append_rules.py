"""What follows from a log's config for each append: codec, level, bounds, and how much is compressed in one step."""

from __future__ import annotations

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.append.append_rules import AppendRules
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.segment.segment import MAX_POSITION
from fencepost.protocol.compression import Codec

ORDERS = TopicPartition("orders", 0)


def rules(**config: object) -> AppendRules:
    return AppendRules(LogConfig(**config), ORDERS)  # type: ignore[arg-type]


def test_without_a_compression_of_its_own_batches_stay_as_they_are() -> None:
    found = rules()
    assert (found.codec, found.level, found.compressed_at_once_bytes) == (None, None, 0)


@pytest.mark.parametrize(
    ("name", "codec", "setting", "default"),
    [
        ("gzip", Codec.GZIP, "compression_gzip_level", -1),
        ("lz4", Codec.LZ4, "compression_lz4_level", 9),
        ("zstd", Codec.ZSTD, "compression_zstd_level", 3),
    ],
)
def test_a_codec_has_its_level_and_a_better_one_takes_smaller_steps(
    name: str, codec: Codec, setting: str, default: int
) -> None:
    usual = rules(compression_type=name)
    assert (usual.codec, usual.level) == (codec, default)
    thorough = rules(compression_type=name, **{setting: 8})
    assert (thorough.codec, thorough.level) == (codec, 8)
    assert 0 < thorough.compressed_at_once_bytes < usual.compressed_at_once_bytes


@pytest.mark.parametrize(("name", "codec"), [("snappy", Codec.SNAPPY), ("uncompressed", Codec.NONE)])
def test_a_codec_without_levels_has_none(name: str, codec: Codec) -> None:
    found = rules(compression_type=name)
    assert (found.codec, found.level) == (codec, None)
    assert found.compressed_at_once_bytes > 0


def test_a_batch_fits_into_a_message_and_into_a_segment() -> None:
    assert rules(max_message_bytes=100, segment_bytes=1_000).largest_batch_bytes == 100
    assert rules(max_message_bytes=1_000, segment_bytes=100).largest_batch_bytes == 100


def test_a_segment_is_no_larger_than_its_index_can_point_into() -> None:
    assert rules(segment_bytes=2 * MAX_POSITION).segment_limits.size_bytes == MAX_POSITION
    assert rules(segment_bytes=1_000).segment_limits.size_bytes == 1_000


def test_only_a_flush_of_every_message_is_durable() -> None:
    assert rules().is_durable
    assert not rules(flush_interval_messages=2).is_durable


def test_a_compacted_log_needs_keys() -> None:
    assert rules(cleanup_policy=frozenset({"compact", "delete"})).record_rules.requires_keys
    assert not rules().record_rules.requires_keys
