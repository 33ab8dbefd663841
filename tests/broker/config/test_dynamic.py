"""Broker settings that change while the broker runs."""

from __future__ import annotations

import pytest

from fencepost.broker.config import (
    DYNAMIC_NAMES,
    SETTINGS,
    ConfigSource,
    Settings,
    check_dynamic_configs,
    describe_broker_configs,
    describe_broker_defaults,
)

BROKER, ALL_BROKERS, STATIC, DEFAULT = (
    ConfigSource.DYNAMIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
    ConfigSource.STATIC_BROKER,
    ConfigSource.DEFAULT,
)


def test_every_dynamic_name_is_a_setting() -> None:
    assert set(SETTINGS) >= DYNAMIC_NAMES


def test_a_setting_of_this_broker_takes_precedence_over_one_of_all_brokers() -> None:
    settings = Settings(message_max_bytes=1000)
    settings.override(of_this_broker={"message.max.bytes": "3000"}, of_all_brokers={"message.max.bytes": "2000"})
    assert settings.message_max_bytes == 3000
    assert settings.static_value("message.max.bytes") == 1000
    settings.override(of_this_broker={}, of_all_brokers={"message.max.bytes": "2000"})
    assert settings.message_max_bytes == 2000
    settings.override(of_this_broker={}, of_all_brokers={})
    assert settings.message_max_bytes == 1000


def test_an_unreadable_value_is_reported_and_left_as_it_was() -> None:
    settings = Settings()
    unreadable = settings.override(
        of_this_broker={"message.max.bytes": "many", "a.plugin's": "1"}, of_all_brokers={"log.retention.ms": "5"}
    )
    assert unreadable == ["message.max.bytes"]
    assert (settings.message_max_bytes, settings.log_retention_ms) == (1_048_588, 5)


def test_all_places_of_a_value_are_shown_strongest_first() -> None:
    settings = Settings(log_retention_ms=7000, origins={"log.retention.ms": "--set"})
    settings.override(of_this_broker={"log.retention.ms": "5000"}, of_all_brokers={"log.retention.ms": "6000"})
    described = {config.name: config for config in describe_broker_configs(settings)}
    retention = described["log.retention.ms"]
    assert (retention.value, retention.source, retention.is_read_only) == ("5000", BROKER, False)
    assert retention.synonyms == (
        ("log.retention.ms", "5000", BROKER),
        ("log.retention.ms", "6000", ALL_BROKERS),
        ("log.retention.ms", "7000", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    )
    assert described["num.partitions"].is_read_only


def test_a_value_of_an_unknown_setting_is_hidden_like_a_secret() -> None:
    settings = Settings()
    settings.override(of_this_broker={"a.plugin's": "secret"}, of_all_brokers={})
    (unknown,) = (config for config in describe_broker_configs(settings) if config.name == "a.plugin's")
    assert (unknown.value, unknown.is_sensitive, unknown.source) == (None, True, BROKER)


def test_the_defaults_of_all_brokers_are_what_was_set_for_all() -> None:
    settings = Settings()
    settings.override(of_this_broker={"message.max.bytes": "1"}, of_all_brokers={"log.retention.ms": " 6000"})
    (shown,) = describe_broker_defaults(settings)
    assert (shown.name, shown.value, shown.source) == ("log.retention.ms", "6000", ALL_BROKERS)


@pytest.mark.parametrize(
    ("configs", "part"),
    [
        ({"node.id": "5", "num.partitions": "5"}, "Cannot update these configs dynamically: [node.id, num.partitions]"),
        ({"broker.id": "5"}, "[broker.id]"),
        ({"process.roles": "broker"}, "[process.roles]"),
        ({"message.max.bytes": "abc"}, "Invalid value abc for configuration message.max.bytes"),
        ({"message.max.bytes": "-5"}, "0 or more"),
        ({"ssl.keystore.location": "x"}, "only per-listener using the listener prefix: [ssl.keystore.location]"),
        ({"ssl.client.auth": "none"}, "Cannot update these configs dynamically: [ssl.client.auth]"),
        ({"listener.name.x.ssl.client.auth": "none"}, "dynamically: [listener.name.x.ssl.client.auth]"),
        ({"listener.name.x.ssl.keystore.type": "JKS"}, "one of PEM, PKCS12"),
        ({"listener.name.x.ssl.engine.factory.class": "x"}, "nothing here reads this security setting"),
    ],
)
def test_a_static_setting_is_refused_at_run_time_with_a_reason(configs: dict[str, str], part: str) -> None:
    assert part in str(check_dynamic_configs(configs))


@pytest.mark.parametrize("name", [*sorted(DYNAMIC_NAMES)])
def test_every_dynamic_setting_takes_its_own_default(name: str) -> None:
    text = SETTINGS[name].format(SETTINGS[name].default)
    assert check_dynamic_configs({name: "1000" if text is None else text}) is None


@pytest.mark.parametrize(
    "name", ["sasl.kerberos.min.time.before.relogin", "listener.name.x.sasl.login.refresh.min.period.seconds"]
)
def test_settings_of_log_ins_that_protect_nothing_are_accepted_without_effect(name: str) -> None:
    assert check_dynamic_configs({name: "60"}) is None
    assert check_dynamic_configs({"sasl.kerberos.min.time.before.relogin": "soon"}) is not None


def test_configs_that_kafkas_tools_set_are_accepted() -> None:
    assert (
        check_dynamic_configs({"leader.replication.throttled.rate": "1000", "num.io.threads": "4", "x.y": "z"}) is None
    )
