"""Topic configs: what clients may set, and how it is shown."""

from __future__ import annotations

import pytest

from fencepost.broker.config import (
    ConfigSource,
    Settings,
    check_topic_configs,
    describe_topic_configs,
    readable_configs,
)


@pytest.mark.parametrize(
    ("configs", "part"),
    [
        ({"retention": "1"}, "Unknown topic config name: retention"),
        ({"retention.m": "1"}, "did you mean 'retention.ms'?"),
        ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms: expected whole number"),
        ({"retention.ms": "-2"}, "-1 or more"),
        ({"retention.ms": None}, "has no value"),
        ({"cleanup.policy": "compact,shred"}, "any of delete, compact"),
        ({"cleanup.policy": "compact,"}, "any of delete, compact"),
        ({"compression.gzip.level": "0"}, "-1 or 1 to 9"),
        ({"leader.replication.throttled.replicas": "0:1,*"}, "partition:broker,… or *"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "0 to 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "expected number"),
        ({"segment.bytes": "3000000000"}, "within"),
        ({"segment.bytes": "1048575"}, "1048576 or more"),
        ({"internal.segment.bytes": ""}, "expected whole number"),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, "min.compaction.lag.ms (10) > max"),
        ({"remote.storage.enable": "true"}, "false only"),
    ],
)
def test_configs_that_cannot_be_are_refused_with_a_reason(configs: dict[str, str | None], part: str) -> None:
    reason = check_topic_configs(configs, Settings())
    assert reason is not None
    assert part in reason


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"cleanup.policy": "compact"},
        {"cleanup.policy": ""},
        {"compression.gzip.level": "5", "leader.replication.throttled.replicas": "0:1,1:1"},
        {"follower.replication.throttled.replicas": "*", "leader.replication.throttled.replicas": " 0:1,"},
        {"retention.bytes": "-5", "segment.index.bytes": "4"},
        {"cleanup.policy": "compact, delete", "retention.ms": "-1"},
        {"segment.bytes": "1048576"},
        {"internal.segment.bytes": "1", "segment.bytes": "2000000"},
        {"min.insync.replicas": "2", "unclean.leader.election.enable": "false", "flush.ms": "1000"},
    ],
)
def test_configs_that_clients_set_are_accepted(configs: dict[str, str | None]) -> None:
    assert check_topic_configs(configs, Settings()) is None


def test_the_size_of_segments_for_tests_is_shown_only_where_it_is_set() -> None:
    assert "internal.segment.bytes" not in {config.name for config in describe_topic_configs({}, Settings())}
    described = {config.name: config for config in describe_topic_configs({"internal.segment.bytes": "9"}, Settings())}
    assert described["internal.segment.bytes"].value == "9"
    assert [synonym.name for synonym in described["internal.segment.bytes"].synonyms] == ["internal.segment.bytes"]
    assert described["segment.bytes"].value == "1073741824"


def test_of_stored_configs_only_those_are_lost_that_cannot_be_read() -> None:
    stored = {"cleanup.policy": "compact", "segment.bytes": "500", "of.a.later.version": "1"}
    readable, reasons = readable_configs(stored)
    assert readable == {"cleanup.policy": "compact", "of.a.later.version": "1"}
    assert [reason.split(":")[0] for reason in reasons] == ["Invalid value 500 for configuration segment.bytes"]


def test_configs_are_described_with_their_value_and_where_it_comes_from() -> None:
    settings = Settings(log_retention_ms=5, origins={"log.retention.ms": "--set"})
    described = {config.name: config for config in describe_topic_configs({"cleanup.policy": "compact"}, settings)}
    policy = described["cleanup.policy"]
    assert (policy.value, policy.source) == ("compact", ConfigSource.TOPIC)
    assert [synonym.name for synonym in policy.synonyms] == ["cleanup.policy", "log.cleanup.policy"]
    retention = described["retention.ms"]
    assert (retention.value, retention.source) == ("5", ConfigSource.STATIC_BROKER)
    assert [synonym.name for synonym in retention.synonyms] == ["log.retention.ms", "log.retention.hours"]
    assert described["segment.ms"].synonyms == ()  # as Kafka: log.roll.ms is not set anywhere
    assert described["segment.ms"].value == "604800000"
    assert described["segment.ms"].source is ConfigSource.DEFAULT
    assert [*described] == sorted(described)
