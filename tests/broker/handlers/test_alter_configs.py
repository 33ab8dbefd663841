"""AlterConfigs, IncrementalAlterConfigs and ListConfigResources, with what changes at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.handler_context import NODE_ID, HandlerBroker, batch, open_broker

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Change = tuple[str, int, str | None]
ALL = ""
HERE = str(NODE_ID)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 2, {"retention.ms": "5000"})
        yield opened


async def alter_all(
    broker: HandlerBroker, *resources: tuple[int, str, list[Change]], validate_only: bool = False, version: int = 1
) -> list[AlterConfigsResourceResponse]:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    IncrementalAlterableConfig(name=config, config_operation=operation, value=value)
                    for config, operation, value in changes
                ],
            )
            for resource_type, name, changes in resources
        ],
        validate_only=validate_only,
    )
    results: list[AlterConfigsResourceResponse] = (await broker.call(request, version)).responses
    return results


async def alter(
    broker: HandlerBroker, resource_type: int, name: str, *changes: Change, validate_only: bool = False
) -> tuple[ErrorCode, str | None]:
    (result,) = await alter_all(broker, (resource_type, name, list(changes)), validate_only=validate_only)
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return ErrorCode(result.error_code), result.error_message


async def value_of(broker: HandlerBroker, resource_type: int, name: str, config: str) -> tuple[str | None, int]:
    """A config and its source, as DescribeConfigs shows them."""
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=[config])
    (result,) = (await broker.call(DescribeConfigsRequest(resources=[resource]))).results
    (shown,) = result.configs
    return shown.value, shown.config_source


async def produce(broker: HandlerBroker, value: bytes) -> ErrorCode:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch(value))])
        ],
    )
    response = await broker.call(request, 12)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_config_of_a_topic_counts_from_the_next_request_on(broker: HandlerBroker, version: int) -> None:
    assert await produce(broker, b"x" * 1000) is ErrorCode.NONE
    (result,) = await alter_all(broker, (TOPIC, "orders", [("max.message.bytes", SET, "500")]), version=version)
    assert (result.error_code, result.error_message) == (0, None)
    assert await produce(broker, b"x" * 1000) is ErrorCode.MESSAGE_TOO_LARGE
    assert await value_of(broker, TOPIC, "orders", "max.message.bytes") == ("500", 1)
    assert await alter(broker, TOPIC, "orders", ("max.message.bytes", DELETE, None)) == (ErrorCode.NONE, None)
    assert await produce(broker, b"x" * 1000) is ErrorCode.NONE
    assert await value_of(broker, TOPIC, "orders", "max.message.bytes") == ("1048588", 5)


async def test_every_config_reaches_the_logs_of_all_partitions(broker: HandlerBroker) -> None:
    wanted = {
        "cleanup.policy": "compact,delete",
        "compression.type": "gzip",
        "delete.retention.ms": "1",
        "flush.messages": "1000",
        "max.compaction.lag.ms": "900",
        "message.timestamp.type": "LogAppendTime",
        "min.cleanable.dirty.ratio": "0.1",
        "min.compaction.lag.ms": "2",
        "retention.bytes": "3",
        "retention.ms": "4",
        "segment.bytes": "2000000",
        "segment.ms": "6",
    }
    assert await alter(broker, TOPIC, "orders", *((name, SET, text) for name, text in wanted.items())) == (
        ErrorCode.NONE,
        None,
    )
    for partition in (0, 1):
        config = broker.log("orders", partition).config
        assert config.cleanup_policy == {"compact", "delete"}
        assert (config.compression_type, config.uses_log_append_time, config.is_durable) == ("gzip", True, False)
        assert (config.retention_bytes, config.retention_ms, config.segment_bytes) == (3, 4, 2_000_000)
        assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms, config.segment_ms) == (2, 900, 6)
        assert (config.delete_retention_ms, config.min_cleanable_dirty_ratio) == (1, 0.1)


async def test_appending_and_subtracting_change_a_list(broker: HandlerBroker) -> None:
    await alter(broker, TOPIC, "orders", ("cleanup.policy", APPEND, "compact"))
    assert await value_of(broker, TOPIC, "orders", "cleanup.policy") == ("delete,compact", 1)
    await alter(broker, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete"))
    assert await value_of(broker, TOPIC, "orders", "cleanup.policy") == ("compact", 1)


async def test_validation_alone_changes_nothing(broker: HandlerBroker) -> None:
    assert (await alter(broker, TOPIC, "orders", ("retention.ms", SET, "7"), validate_only=True))[0] is ErrorCode.NONE
    assert (await alter(broker, TOPIC, "orders", ("retention.ms", SET, "x"), validate_only=True))[0] is (
        ErrorCode.INVALID_CONFIG
    )
    assert (await alter(broker, BROKER, HERE, ("message.max.bytes", SET, "7"), validate_only=True))[0] is ErrorCode.NONE
    assert await value_of(broker, TOPIC, "orders", "retention.ms") == ("5000", 1)
    assert await value_of(broker, BROKER, HERE, "message.max.bytes") == ("1048588", 5)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_alter_configs_replaces_all_that_was_set(broker: HandlerBroker, version: int) -> None:
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="orders",
                configs=[AlterableConfig(name="flush.ms", value="10")],
            )
        ]
    )
    (result,) = (await broker.call(request, version)).responses
    assert (result.error_code, result.resource_name) == (0, "orders")
    assert await value_of(broker, TOPIC, "orders", "retention.ms") == ("604800000", 5)
    assert await value_of(broker, TOPIC, "orders", "flush.ms") == ("10", 1)


@pytest.mark.parametrize(
    ("resource_type", "name", "changes", "error", "message"),
    [
        (TOPIC, "nowhere", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (TOPIC, "nowhere", [("foo.bar", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: foo.bar"),
        (TOPIC, "a/b", [("retention.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b"),
        (TOPIC, "a/b", [("foo.bar", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b"),
        (TOPIC, "a/b", [("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG, "not LIST"),
        (TOPIC, "", [("retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST, "Default topic resources"),
        (TOPIC, "", [("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG, "not LIST"),
        (GROUP, "", [("share.isolation.level", APPEND, "x")], ErrorCode.INVALID_CONFIG, "not LIST"),
        (TOPIC, "orders", [("foo.bar", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: foo.bar"),
        (TOPIC, "orders", [("retention.ms", SET, "abc")], ErrorCode.INVALID_CONFIG, "Invalid value abc for"),
        (TOPIC, "orders", [("retention.ms", SET, "-5")], ErrorCode.INVALID_CONFIG, "-1 or more"),
        (TOPIC, "orders", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported"),
        (TOPIC, "orders", [("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG, "not LIST"),
        (TOPIC, "orders", [("retention.ms", 9, "5")], ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (TOPIC, "orders", [("a", SET, "1"), ("a", SET, "2")], ErrorCode.INVALID_REQUEST, "duplicate config keys"),
        (BROKER, HERE, [("num.partitions", SET, "2")], ErrorCode.INVALID_REQUEST, "[num.partitions]"),
        (BROKER, HERE, [("message.max.bytes", 9, "2")], ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        (BROKER, ALL, [("message.max.bytes", SET, "x")], ErrorCode.INVALID_REQUEST, "Invalid value x"),
        (BROKER, "99", [("message.max.bytes", SET, "1")], ErrorCode.INVALID_REQUEST, "received 99"),
        (BROKER, "one", [("message.max.bytes", SET, "1")], ErrorCode.INVALID_REQUEST, "must be an integer"),
        (GROUP, "workers", [("streams.threads", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown group config"),
        (GROUP, "workers", [("streams.session.timeout.ms", SET, "1")], ErrorCode.INVALID_CONFIG, "greater than"),
        (GROUP, "workers", [("streams.num.standby.replicas", SET, "3")], ErrorCode.INVALID_CONFIG, "less than"),
        (GROUP, "workers", [("streams.initial.rebalance.delay.ms", SET, "-1")], ErrorCode.INVALID_CONFIG, "0 or more"),
        (GROUP, "workers", [("share.record.lock.duration.ms", SET, "1")], ErrorCode.INVALID_CONFIG, "greater than"),
        (GROUP, "workers", [("consumer.session.timeout.ms", SET, "1")], ErrorCode.INVALID_CONFIG, "greater than"),
        (GROUP, "workers", [("share.auto.offset.reset", SET, "tomorrow")], ErrorCode.INVALID_CONFIG, "earliest"),
        (CLIENT_METRICS, "", [("metrics", SET, "*")], ErrorCode.INVALID_REQUEST, "can't be empty"),
        (CLIENT_METRICS, "all", [("metric", SET, "*")], ErrorCode.INVALID_REQUEST, "Unknown client metrics"),
        (CLIENT_METRICS, "all", [("interval.ms", SET, "99")], ErrorCode.INVALID_REQUEST, "between 100 and 3600000"),
        (CLIENT_METRICS, "all", [("interval.ms", SET, "often")], ErrorCode.INVALID_CONFIG, "whole number"),
        (CLIENT_METRICS, "all", [("interval.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "not LIST"),
        (CLIENT_METRICS, "all", [("match", SET, "client_name=a")], ErrorCode.INVALID_CONFIG, "Illegal client matching"),
        (CLIENT_METRICS, "all", [("match", SET, "client_id=(a")], ErrorCode.INVALID_CONFIG, "Illegal client matching"),
        (GROUP, "", [("share.isolation.level", SET, "read_committed")], ErrorCode.INVALID_REQUEST, "not allowed"),
    ],
)
async def test_invalid_configs_are_refused_and_change_nothing(
    broker: HandlerBroker, resource_type: int, name: str, changes: list[Change], error: ErrorCode, message: str | None
) -> None:
    refused, reason = await alter(broker, resource_type, name, *changes)
    assert refused is error
    assert reason is None if message is None else message in str(reason)
    assert await value_of(broker, TOPIC, "orders", "retention.ms") == ("5000", 1)


async def test_a_resource_named_twice_is_refused_twice_and_the_others_are_served(broker: HandlerBroker) -> None:
    results = await alter_all(
        broker,
        (TOPIC, "orders", [("retention.ms", SET, "1")]),
        (TOPIC, "orders", [("retention.ms", SET, "2")]),
        (BROKER, HERE, [("message.max.bytes", SET, "2000")]),
    )
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]
    assert await value_of(broker, TOPIC, "orders", "retention.ms") == ("5000", 1)
    assert await value_of(broker, BROKER, HERE, "message.max.bytes") == ("2000", 2)


async def test_a_broker_config_is_the_default_of_all_topics_at_once(broker: HandlerBroker) -> None:
    assert await alter(broker, BROKER, ALL, ("log.retention.ms", SET, "9000"), ("message.max.bytes", SET, "500")) == (
        ErrorCode.NONE,
        None,
    )
    assert await produce(broker, b"x" * 1000) is ErrorCode.MESSAGE_TOO_LARGE
    assert await value_of(broker, TOPIC, "orders", "max.message.bytes") == ("500", 3)
    assert await value_of(broker, TOPIC, "orders", "retention.ms") == ("5000", 1)
    await alter(broker, BROKER, HERE, ("message.max.bytes", SET, "5000"))
    assert await value_of(broker, BROKER, HERE, "message.max.bytes") == ("5000", 2)
    assert await value_of(broker, BROKER, ALL, "message.max.bytes") == ("500", 3)
    assert await produce(broker, b"x" * 1000) is ErrorCode.NONE
    await alter(broker, BROKER, HERE, ("message.max.bytes", DELETE, None))
    await alter(broker, BROKER, ALL, ("message.max.bytes", DELETE, None))
    assert await value_of(broker, TOPIC, "orders", "max.message.bytes") == ("1048588", 5)


async def test_levels_of_loggers_are_set_one_by_one_only(broker: HandlerBroker) -> None:
    changes = [("broker.hosting.topics", SET, "TRACE"), ("root", SET, "WARN")]
    assert await alter(broker, LOGGER, HERE, *changes, validate_only=True) == (ErrorCode.NONE, None)
    assert (await value_of(broker, LOGGER, HERE, "root"))[0] == "INFO"
    assert await alter(broker, LOGGER, HERE, *changes) == (ErrorCode.NONE, None)
    assert (await value_of(broker, LOGGER, HERE, "broker.hosting.topics"))[0] == "TRACE"
    assert await alter(broker, LOGGER, HERE, ("broker.hosting.topics", DELETE, None)) == (ErrorCode.NONE, None)
    assert (await value_of(broker, LOGGER, HERE, "broker.hosting.topics"))[0] == "WARN"
    assert (await alter(broker, LOGGER, HERE, ("root", APPEND, "INFO")))[0] is ErrorCode.INVALID_REQUEST
    replaced = AlterConfigsRequest([AlterConfigsResource(LOGGER, HERE, [AlterableConfig("root", "INFO")])])
    (result,) = (await broker.call(replaced)).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert (await value_of(broker, LOGGER, HERE, "root"))[0] == "WARN"


async def test_client_metrics_are_changed_listed_and_gone_with_their_last_config(broker: HandlerBroker) -> None:
    async def listed() -> list[str]:
        response = await broker.call(ListConfigResourcesRequest(), 0)
        return [found.resource_name for found in response.config_resources]

    for operation, value, expected in ((SET, "a.", "a."), (APPEND, "b.", "a.,b."), (SUBTRACT, "a.", "b.")):
        assert (await alter(broker, CLIENT_METRICS, "mine", ("metrics", operation, value)))[0] == 0
        assert (await value_of(broker, CLIENT_METRICS, "mine", "metrics"))[0] == expected
    assert await listed() == ["mine"]
    assert (await alter(broker, CLIENT_METRICS, "mine", ("metrics", DELETE, None)))[0] == 0
    assert await listed() == []


async def test_config_resources_are_topics_brokers_and_their_loggers(broker: HandlerBroker) -> None:
    async def listed(*types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
        response = await broker.call(ListConfigResourcesRequest(resource_types=list(types)), version)
        return response.error_code, [(found.resource_type, found.resource_name) for found in response.config_resources]

    assert await listed() == (0, [(BROKER, HERE), (LOGGER, HERE), (TOPIC, "orders")])
    assert await listed(LOGGER) == (0, [(LOGGER, HERE)])
    assert await listed(TOPIC) == (0, [(TOPIC, "orders")])
    assert await listed(GROUP) == (0, [])
    assert await listed(99) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert await listed(version=0) == (0, [])
