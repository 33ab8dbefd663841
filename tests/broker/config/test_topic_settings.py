"""Topic configs: what clients may set, and how it is shown."""

from __future__ import annotations

import pytest

from broker.config import ConfigSource, Settings, check_topic_configs, describe_topic_configs


@pytest.mark.parametrize(
    ("configs", "part"),
    [
        ({"retention": "1"}, "Unknown topic config name: retention"),
        ({"retention.m": "1"}, "did you mean 'retention.ms'?"),
        ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms: expected whole number"),
        ({"retention.ms": "-2"}, "-1 or more"),
        ({"retention.ms": None}, "has no value"),
        ({"cleanup.policy": "compact,shred"}, "any of delete, compact"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "0 to 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "expected number"),
        ({"segment.bytes": "3000000000"}, "within"),
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
        {"cleanup.policy": "compact, delete", "retention.ms": "-1"},
        {"min.insync.replicas": "2", "unclean.leader.election.enable": "false", "flush.ms": "1000"},
    ],
)
def test_configs_that_clients_set_are_accepted(configs: dict[str, str | None]) -> None:
    assert check_topic_configs(configs, Settings()) is None


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
