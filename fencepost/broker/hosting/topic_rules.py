"""Rules for topics: valid names, configs of internal topics, settings of their logs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fencepost.broker.config import INTERNAL_SEGMENT_BYTES, SMALLEST_SEGMENT_BYTES, Settings, effective_values
from fencepost.broker.kernel.topic_partition import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from fencepost.broker.log.log_config import MAX_INT64, LogConfig

MAX_NAME_LENGTH = 249  # so that `name-partition` and a suffix fit into a file name of 255 bytes
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_topic_name(name: str) -> str | None:
    """The reason to refuse a topic's name (INVALID_TOPIC_EXCEPTION), in words of Kafka's Topic.validate, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: {name!r} is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"Topic name is invalid: its length of {len(name)} is longer than the max allowed length {MAX_NAME_LENGTH}"
        )
    if not _LEGAL_NAME.match(name):
        return (
            f"Topic name is invalid: {name!r} contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def refused_factor(factor: int, brokers_count: int, settings: Settings) -> str | None:
    """The reason to refuse a replication factor (INVALID_REPLICATION_FACTOR), or None.

    A partition has one replica for any factor. A cluster of machines accepts the factors that Kafka would accept, as
    its stores keep the copies. brokers_count: number of live brokers.
    """
    if factor <= 0:
        return "Replication factor must be larger than 0, or -1 for the default."
    is_of_machines = settings.fencepost_cluster_url is not None
    most = brokers_count if is_of_machines else 1
    if factor <= most or settings.fencepost_replication_factor_any:
        return None
    if brokers_count > 1 and not is_of_machines:
        return "Every partition has one replica here, whatever the number of brokers; use 1, or -1 for the default."
    return (
        f"Unable to replicate the partition {factor} time(s): "
        f"the target replication factor is larger than the number of brokers, which is {most}."
    )


class InternalTopicSettings(NamedTuple):
    """Partition count and configs of an internal topic at its creation."""

    partition_count: int
    configs: Mapping[str, str]


def internal_topic(name: str, settings: Settings) -> InternalTopicSettings:
    """Partition count and configs of an internal topic. Source: Kafka's
    TransactionStateManager.transactionStateTopicConfigs, GroupCoordinatorService.groupMetadataTopicConfigs and
    ShareCoordinatorService.shareGroupStateTopicConfigs."""
    if name == TRANSACTION_STATE_TOPIC:
        return InternalTopicSettings(
            settings.transaction_state_log_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(settings.transaction_state_log_min_isr),
                **_segment_bytes(settings.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == CONSUMER_OFFSETS_TOPIC:
        return InternalTopicSettings(
            settings.offsets_topic_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                **_segment_bytes(settings.offsets_topic_segment_bytes),
            },
        )
    if name == SHARE_GROUP_STATE_TOPIC:
        return InternalTopicSettings(
            settings.share_coordinator_state_topic_num_partitions,
            {
                # Updates add up, so compaction would lose some; the share coordinator deletes obsolete records.
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(settings.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
                **_segment_bytes(settings.share_coordinator_state_topic_segment_bytes),
            },
        )
    raise ValueError(f"{name} is not an internal topic")


def refused_internal_configs(name: str, configs: Mapping[str, str | None], settings: Settings) -> str | None:
    """The reason to refuse a topic with these configs if it is an internal one, or None.

    Kafka accepts any, and its coordinators then lose the records that retention deletes.
    """
    if name not in INTERNAL_TOPICS:
        return None
    needed = internal_topic(name, settings).configs
    for config in ("cleanup.policy", "retention.ms"):
        value = configs.get(config)
        if value is not None and config in needed and value.strip() != needed[config]:
            return f"The coordinator that keeps its state in {name} needs {config}={needed[config]}; got {value!r}"
    return None


def _segment_bytes(segment_bytes: int) -> dict[str, str]:
    """The config for a segment size. Tests use sizes that the broker setting accepts and `segment.bytes` refuses."""
    name = "segment.bytes" if segment_bytes >= SMALLEST_SEGMENT_BYTES else INTERNAL_SEGMENT_BYTES
    return {name: str(segment_bytes)}


def _producer_id_expiration_ms(values: Mapping[str, Any], settings: Settings) -> int:
    """A topic for dead letters never forgets a producer id: a copy that a crash has interrupted is continued later, by
    months if nobody starts the broker, and is the same batch."""
    return MAX_INT64 if values["errors.deadletterqueue.group.enable"] else settings.producer_id_expiration_ms


def log_config(configs: Mapping[str, str], settings: Settings) -> LogConfig:
    """The settings of a topic's logs: its own configs over the broker's defaults. Raises ValueError."""
    values = effective_values(configs, settings)
    internal_segment_bytes = values[INTERNAL_SEGMENT_BYTES]
    return LogConfig(
        cleanup_policy=frozenset(values["cleanup.policy"]),
        compression_gzip_level=values["compression.gzip.level"],
        compression_lz4_level=values["compression.lz4.level"],
        compression_type=values["compression.type"],
        compression_zstd_level=values["compression.zstd.level"],
        delete_retention_ms=values["delete.retention.ms"],
        errors_deadletterqueue_group_enable=values["errors.deadletterqueue.group.enable"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
        flush_interval_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        index_interval_bytes=values["index.interval.bytes"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        max_decompressed_message_bytes=values["max.decompressed.message.bytes"],
        max_message_bytes=values["max.message.bytes"],
        message_timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        message_timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        message_timestamp_type=values["message.timestamp.type"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        retention_bytes=values["retention.bytes"],
        retention_ms=values["retention.ms"],
        segment_bytes=values["segment.bytes"] if internal_segment_bytes is None else internal_segment_bytes,
        segment_index_bytes=values["segment.index.bytes"],
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_ms=values["segment.ms"],
        producer_id_expiration_ms=_producer_id_expiration_ms(values, settings),
        transaction_partition_verification_enable=settings.transaction_partition_verification_enable,
        max_decompressed_bytes=settings.fencepost_batch_max_decompressed_bytes,
    )
