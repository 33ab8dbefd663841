"""DescribeConfigs: values, where they come from, and what else is shown of them when it is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tests.support.handler_context import NODE_ID, HandlerBroker, open_broker

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT, DYNAMIC_BROKER_LOGGER, DYNAMIC_CLIENT_METRICS = 1, 4, 5, 6, 7


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path, log_retention_bytes=123_456) as opened:
        await opened.create_topic("orders", 1, {"cleanup.policy": "compact", "retention.ms": "5000"})
        yield opened


async def describe(
    broker: HandlerBroker,
    resource_type: int,
    name: str,
    *keys: str,
    synonyms: bool = False,
    documentation: bool = False,
    version: int = 4,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    result: DescribeConfigsResult
    (result,) = (await broker.call(request, version)).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


def by_name(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert (result.error_code, result.error_message) == (0, "")
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_topic_shows_its_own_values_and_the_defaults(broker: HandlerBroker, version: int) -> None:
    configs = by_name(await describe(broker, TOPIC, "orders", version=version))
    assert {name: (configs[name].value, configs[name].config_source) for name in configs} | {
        "cleanup.policy": ("compact", DYNAMIC_TOPIC),
        "retention.ms": ("5000", DYNAMIC_TOPIC),
        "retention.bytes": ("123456", STATIC_BROKER),
        "max.message.bytes": ("1048588", DEFAULT),
    } == {name: (configs[name].value, configs[name].config_source) for name in configs}
    assert not any(config.read_only or config.is_sensitive for config in configs.values())


async def test_keys_choose_what_is_shown(broker: HandlerBroker) -> None:
    configs = by_name(await describe(broker, TOPIC, "orders", "retention.ms", "no.such.key"))
    assert list(configs) == ["retention.ms"]


async def test_synonyms_are_shown_on_request_strongest_first(broker: HandlerBroker) -> None:
    silent = by_name(await describe(broker, TOPIC, "orders", "retention.bytes"))
    assert silent["retention.bytes"].synonyms == []
    asked = by_name(await describe(broker, TOPIC, "orders", "cleanup.policy", synonyms=True))
    assert [(synonym.name, synonym.value, synonym.source) for synonym in asked["cleanup.policy"].synonyms] == [
        ("cleanup.policy", "compact", DYNAMIC_TOPIC),
        ("log.cleanup.policy", "delete", DEFAULT),
    ]
    asked = by_name(await describe(broker, TOPIC, "orders", "retention.bytes", synonyms=True))
    assert [(synonym.name, synonym.value, synonym.source) for synonym in asked["retention.bytes"].synonyms] == [
        ("log.retention.bytes", "123456", STATIC_BROKER),
        ("log.retention.bytes", "-1", DEFAULT),
    ]


async def test_defaults_without_effect_are_shown_under_the_names_of_kafkas_broker_settings(
    broker: HandlerBroker,
) -> None:
    configs = by_name(await describe(broker, TOPIC, "orders", "preallocate", "local.retention.ms", synonyms=True))
    found = [synonym for name in sorted(configs) for synonym in configs[name].synonyms]
    assert [(synonym.name, synonym.value, synonym.source) for synonym in found] == [
        ("log.local.retention.ms", "-2", DEFAULT),
        ("log.preallocate", "false", DEFAULT),
    ]


async def test_documentation_is_shown_on_request(broker: HandlerBroker) -> None:
    assert by_name(await describe(broker, TOPIC, "orders", "retention.ms"))["retention.ms"].documentation is None
    asked = by_name(await describe(broker, TOPIC, "orders", "retention.ms", documentation=True))
    assert asked["retention.ms"].documentation


async def test_types_are_shown_with_kafkas_numbers(broker: HandlerBroker) -> None:
    configs = by_name(await describe(broker, TOPIC, "orders"))
    types = {name: configs[name].config_type for name in ("preallocate", "retention.ms", "cleanup.policy")}
    assert types == {"preallocate": 1, "retention.ms": 5, "cleanup.policy": 7}


async def test_broker_shows_its_settings_and_which_may_change(broker: HandlerBroker) -> None:
    configs = by_name(await describe(broker, BROKER, str(NODE_ID)))
    assert (configs["log.retention.bytes"].value, configs["log.retention.bytes"].config_source) == (
        "123456",
        STATIC_BROKER,
    )
    assert configs["num.partitions"].config_source == DEFAULT
    assert not configs["log.retention.bytes"].read_only
    assert configs["num.partitions"].read_only


async def test_defaults_of_all_brokers_are_empty(broker: HandlerBroker) -> None:
    assert by_name(await describe(broker, BROKER, "")) == {}


async def test_loggers_are_described_with_their_levels(broker: HandlerBroker) -> None:
    everything = by_name(await describe(broker, BROKER_LOGGER, str(NODE_ID), synonyms=True, documentation=True))
    assert everything["broker.hosting.topics"].value == "INFO"
    assert (by_name(await describe(broker, BROKER_LOGGER, str(NODE_ID), "root", "no.such.logger", synonyms=True))) == {
        "root": DescribeConfigsResourceResult(name="root", value="INFO", config_source=DYNAMIC_BROKER_LOGGER)
    }


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "99", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "99", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_resource_without_configs_is_refused_with_a_reason(
    broker: HandlerBroker, resource_type: int, name: str, error: ErrorCode
) -> None:
    result = await describe(broker, resource_type, name)
    assert (ErrorCode(result.error_code), result.configs) == (error, [])
    assert result.error_message


async def test_client_metrics_show_their_defaults_and_what_was_set(broker: HandlerBroker) -> None:
    configs = by_name(await describe(broker, CLIENT_METRICS, "nobodys", synonyms=True))
    assert {name: (one.value, one.config_source) for name, one in configs.items()} == {
        "interval.ms": ("300000", DEFAULT),
        "match": ("", DEFAULT),
        "metrics": ("", DEFAULT),
    }
    set_configs = {"metrics": "a.,b.", "interval.ms": "5000"}
    await broker.services.client_metrics_configs.alter("mine", lambda _: set_configs, validate_only=False)
    configs = by_name(await describe(broker, CLIENT_METRICS, "mine", "metrics", "interval.ms"))
    assert {name: (one.value, one.config_source) for name, one in configs.items()} == {
        "interval.ms": ("5000", DYNAMIC_CLIENT_METRICS),
        "metrics": ("a.,b.", DYNAMIC_CLIENT_METRICS),
    }


async def test_a_kind_of_resource_that_does_not_exist_fails_the_whole_request(broker: HandlerBroker) -> None:
    resources = [DescribeConfigsResource(TOPIC, "orders", None), DescribeConfigsResource(77, "orders", None)]
    results = (await broker.call(DescribeConfigsRequest(resources))).results
    assert [(ErrorCode(result.error_code), result.configs) for result in results] == [
        (ErrorCode.INVALID_REQUEST, []),
        (ErrorCode.INVALID_REQUEST, []),
    ]
