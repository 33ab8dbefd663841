"""The settings table, and what is made from it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from fencepost.broker.config import SETTINGS, TOPIC_SETTINGS, Settings, check_topic_configs, describe_broker_configs
from fencepost.broker.config.loading import IGNORED_NAMES, IGNORED_PREFIXES
from fencepost.broker.hosting.topic_rules import internal_topic, log_config
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from fencepost.broker.log.log_config import LogConfig

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_default_is_a_value_that_the_setting_takes(name: str) -> None:
    setting = SETTINGS[name]
    text = setting.format(setting.default)
    if text is not None and setting.default != ():
        assert setting.parse(text) == setting.default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("group.consumer.migration.policy", "BIDIRECTIONAL", "bidirectional"),
        ("group.consumer.migration.policy", "Upgrade", "upgrade"),
        ("ssl.endpoint.identification.algorithm", "HTTPS", "https"),
        ("ssl.endpoint.identification.algorithm", "", ""),
        ("ssl.keystore.type", "pkcs12", "PKCS12"),
        ("ssl.truststore.type", "Pkcs12", "PKCS12"),
        ("ssl.protocol", "tlsv1.3", "TLSv1.3"),
        ("auto.create.topics.enable", "TRUE", True),
    ],
)
def test_what_kafka_takes_in_any_case_is_taken_in_any_case(name: str, text: str, value: object) -> None:
    assert SETTINGS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.cleanup.policy", "Compact"),
        ("compression.type", "ZSTD"),
        ("log.message.timestamp.type", "logappendtime"),
        ("ssl.client.auth", "REQUIRED"),
        ("ssl.enabled.protocols", "tlsv1.3"),
        ("security.inter.broker.protocol", "plaintext"),
        ("group.consumer.assignors", "UNIFORM"),
    ],
)
def test_what_kafka_refuses_in_another_case_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        SETTINGS[name].parse(text)


PROTECTED_LISTENERS = (
    "ssl.",
    "sasl.mechanism.inter.",
)
"""Settings of listeners with TLS, which are refused, and of connections between nodes."""


@pytest.mark.parametrize(
    "name",
    [name for name, setting in SETTINGS.items() if setting.has_effect and not name.startswith(PROTECTED_LISTENERS)],
)
def test_every_setting_is_used_somewhere(name: str) -> None:
    words, quoted = used_names()
    assert SETTINGS[name].attribute in words or name in quoted, (
        f"nothing reads {name}; say has_effect=False or take it out"
    )


@cache
def used_names() -> tuple[set[str], set[str]]:
    """The words and the quoted names in the sources, without the tables that declare settings."""
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "fencepost" / "broker").rglob("*.py")
        if path.name not in ("table.py", "security_table.py")
    )
    return set(re.findall(r"\w+", sources)), set(re.findall(r'"([\w.]+)"', sources))


def test_no_setting_is_both_known_and_ignored() -> None:
    for name in SETTINGS:
        assert name not in IGNORED_NAMES
        assert not name.startswith(IGNORED_PREFIXES)


def test_every_topic_config_that_has_an_effect_reaches_the_log() -> None:
    own_names = {"flush.messages": "flush_interval_messages"}
    for name, row in TOPIC_SETTINGS.items():
        if row.has_effect and not row.is_internal:
            assert hasattr(LogConfig(), own_names.get(name, row.log_config_field)), name


def test_a_topic_without_configs_has_kafkas_defaults() -> None:
    assert log_config({}, Settings()) == LogConfig()


def test_a_setting_in_hours_gives_a_topic_config_in_milliseconds() -> None:
    assert log_config({}, Settings(log_retention_hours=2)).retention_ms == 7_200_000
    assert log_config({}, Settings(log_retention_hours=-1)).retention_ms == -1


def test_the_finer_unit_is_the_stronger() -> None:
    settings = Settings(log_retention_hours=2, log_retention_minutes=3)
    assert log_config({}, settings).retention_ms == 180_000
    assert log_config({}, Settings(log_retention_minutes=3, log_retention_ms=5)).retention_ms == 5


def test_a_topics_own_config_is_stronger_than_the_brokers() -> None:
    settings = Settings(log_segment_bytes=2_000_000, log_cleanup_policy=("compact",))
    config = log_config({"segment.bytes": "3000000"}, settings)
    assert config.segment_bytes == 3_000_000
    assert config.cleanup_policy == frozenset({"compact"})
    assert log_config({"segment.bytes": "3000000", "internal.segment.bytes": "300"}, settings).segment_bytes == 300


def test_the_brokers_own_topics_may_have_small_segments_in_tests() -> None:
    settings = Settings(offsets_topic_segment_bytes=700)
    for name, segment_bytes in ((CONSUMER_OFFSETS_TOPIC, 700), (TRANSACTION_STATE_TOPIC, 4_194_304)):
        configs = internal_topic(name, settings).configs
        assert check_topic_configs(configs, settings) is None
        assert log_config(configs, settings).segment_bytes == segment_bytes


def test_broker_configs_are_described_with_where_they_come_from() -> None:
    described = {config.name: config for config in describe_broker_configs(Settings(num_partitions=3))}
    assert described["num.partitions"].value == "3"
    assert described["num.partitions"].source.name == "STATIC_BROKER"
    assert described["auto.create.topics.enable"].value == "true"
    assert described["auto.create.topics.enable"].source.name == "DEFAULT"
    assert described["log.retention.ms"].value is None
