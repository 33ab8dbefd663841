"""Group configs: what clients may set, and what a share group's reset by duration means."""

from __future__ import annotations

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.config.group_settings import (
    check_group_configs,
    describe_group_configs,
    duration_ms,
    group_value,
)
from fencepost.broker.config.settings import ConfigSource, ConfigSynonym
from fencepost.broker.config.topic_settings import ConfigValue


@pytest.mark.parametrize(
    ("duration", "expected_ms"),
    [
        ("P1D", 86_400_000),
        ("P1DT2H30M", 95_400_000),
        ("PT1.5S", 1_500),
        ("PT1,5S", 1_500),
        ("pt1h", 3_600_000),
        ("PT1H-30M", 1_800_000),
        ("-PT-1H", 3_600_000),
        ("+PT+1M", 60_000),
        ("PT0S", 0),
        ("-PT1H", None),
        ("PT-1H", None),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("P1H", None),
        ("1H", None),
    ],
)
def test_durations_are_read_as_java_reads_them(duration: str, expected_ms: int | None) -> None:
    assert duration_ms(f"by_duration:{duration}") == expected_ms


@pytest.mark.parametrize(
    ("configs", "part"),
    [
        ({"share.assignment.interval.ms": "-1"}, "0 or more"),
        ({"errors.deadletterqueue.topic.name": "__dlq"}, "must not start with '__'"),
        ({"share.assignment.interval.ms": "15001"}, "less than or equal to group.share.max.assignment.interval.ms"),
        ({"share.auto.offset.reset": "by_duration:-PT1H"}, "by_duration:DURATION"),
        ({"share.session.timeout.ms": "45000", "share.heartbeat.interval.ms": "45000"}, "must be"),
        ({"streams.assignor.name": "highly_available"}, "sticky"),
        ({"streams.rack.aware.assignment.tags": "zone,zone"}, "different words"),
        ({"streams.rack.aware.assignment.tags": "zone,"}, "different words"),
        ({"no.such.config": "1"}, "Unknown group config name"),
    ],
)
def test_configs_that_cannot_be_are_refused_with_a_reason(configs: dict[str, str], part: str) -> None:
    reason = check_group_configs(configs, Settings())
    assert reason is not None
    assert part in reason


def test_a_groups_own_value_counts_within_the_brokers_limits() -> None:
    configs = {"share.assignment.interval.ms": "4000"}
    assert group_value("share.assignment.interval.ms", configs, Settings()) == 4_000
    assert group_value("share.assignment.interval.ms", {}, Settings(group_share_assignment_interval_ms=7)) == 7
    settings = Settings(group_share_max_assignment_interval_ms=3_000)
    assert group_value("share.assignment.interval.ms", configs, settings) == 3_000


def test_the_assignor_of_a_streams_group_is_by_default_the_first_of_the_brokers() -> None:
    """Source: what Apache Kafka 4.4 answers DescribeConfigs."""

    def described(configs: dict[str, str]) -> ConfigValue:
        (found,) = (
            one for one in describe_group_configs(configs, Settings()) if one.setting.name == "streams.assignor.name"
        )
        return found

    default = ConfigSynonym("group.streams.assignors", "sticky", ConfigSource.DEFAULT)
    assert (described({}).value, described({}).source, described({}).synonyms) == (
        "sticky",
        ConfigSource.DEFAULT,
        (default,),
    )
    own = described({"streams.assignor.name": "sticky"})
    assert own.synonyms == (ConfigSynonym("streams.assignor.name", "sticky", ConfigSource.GROUP), default)
