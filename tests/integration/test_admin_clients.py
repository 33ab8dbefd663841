"""What administrators change, with the admin clients of kafka-python and confluent-kafka; it counts at once and is kept
across restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka.admin import AlterConfigOp, KafkaAdminClient
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType as KafkaPythonType

from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from tests.support.admin_client import TIMEOUT_S, create
from tests.support.broker_process import BrokerProcess
from tests.support.wire import WireConnection


def alter(
    admin: AdminClient, kind: ResourceType, name: str, *changes: tuple[str, AlterConfigOpType, str | None]
) -> None:
    entries = [ConfigEntry(config, value, incremental_operation=operation) for config, operation, value in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    next(iter(admin.incremental_alter_configs([resource]).values())).result(TIMEOUT_S)


def alter_all_brokers(broker: BrokerProcess, config: str, value: str) -> None:
    """With a plain request: neither Python client sends an empty name."""
    change = IncrementalAlterableConfig(name=config, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[IncrementalAlterConfigsResource(resource_type=ResourceType.BROKER.value, configs=[change])]
    )
    host, _, port = broker.bootstrap.partition(":")
    with WireConnection(host, int(port)) as connection:
        (answer,) = connection.call(request, IncrementalAlterConfigsResponse, 1, flexible_header=True).responses
    assert (answer.error_code, answer.resource_name) == (0, "")


def value_of(admin: AdminClient, kind: ResourceType, name: str, config: str) -> tuple[str, int]:
    described = next(iter(admin.describe_configs([ConfigResource(kind, name)]).values())).result(TIMEOUT_S)
    return described[config].value, described[config].source


def produce(broker: BrokerProcess, topic: str, value: bytes) -> Any:
    """The error of delivery, None when there is none."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 10_000_000})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    (error,) = errors
    return error


def test_a_topics_configs_change_at_once(
    broker: BrokerProcess, confluent: AdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("configured")
    create(confluent, topic)
    large = bytes(50_000)
    assert produce(broker, topic, large) is None
    alter(confluent, ResourceType.TOPIC, topic, ("max.message.bytes", AlterConfigOpType.SET, "1000"))
    assert produce(broker, topic, large).code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert value_of(confluent, ResourceType.TOPIC, topic, "max.message.bytes") == ("1000", 1)
    alter(confluent, ResourceType.TOPIC, topic, ("max.message.bytes", AlterConfigOpType.DELETE, None))
    assert produce(broker, topic, large) is None
    alter(confluent, ResourceType.TOPIC, topic, ("cleanup.policy", AlterConfigOpType.APPEND, "compact"))
    assert value_of(confluent, ResourceType.TOPIC, topic, "cleanup.policy") == ("delete,compact", 1)


def test_errors_are_reported_in_kafkas_words(confluent: AdminClient, unique: Callable[[str], str]) -> None:
    topic = unique("configured")
    create(confluent, topic)
    with pytest.raises(KafkaException, match="Unknown topic config name: retentions"):
        alter(confluent, ResourceType.TOPIC, topic, ("retentions", AlterConfigOpType.SET, "1"))
    with pytest.raises(KafkaException, match=r"Cannot update these configs dynamically: \[num.partitions\]"):
        alter(confluent, ResourceType.BROKER, "1", ("num.partitions", AlterConfigOpType.SET, "1"))


def test_kafka_python_alters_and_resets_configs(
    kafka_python: KafkaAdminClient, confluent: AdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("configured")
    create(confluent, topic)

    def shown() -> Any:
        resource = KafkaPythonResource(KafkaPythonType.TOPIC, topic)
        return kafka_python.describe_configs([resource], config_filter="modified")["topic"][topic]

    for incremental in (True, False):
        wanted = {"retention.ms": (AlterConfigOp.SET, "60000")}
        resource = KafkaPythonResource(KafkaPythonType.TOPIC, topic, configs=wanted)
        assert kafka_python.alter_configs([resource], incremental=incremental) == {"topic": {topic: "OK"}}
        assert shown()["retention.ms"]["value"] == "60000"
        everything = KafkaPythonResource(KafkaPythonType.TOPIC, topic, configs={})  # None makes it stumble
        assert kafka_python.reset_configs([everything]) == {"topic": {topic: "OK"}}
        assert not shown()


def test_config_resources_are_listed(
    kafka_python: KafkaAdminClient, confluent: AdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("configured")
    create(confluent, topic)
    listed = kafka_python.list_config_resources()
    assert topic in str(listed)


def test_configs_outlive_a_restart(own_broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    topic = unique("configured")
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    create(admin, topic)
    alter(admin, ResourceType.TOPIC, topic, ("retention.ms", AlterConfigOpType.SET, "77000"))
    alter_all_brokers(own_broker, "message.max.bytes", "2000")
    alter(admin, ResourceType.BROKER, "1", ("log.retention.bytes", AlterConfigOpType.SET, "9000"))
    own_broker.kill()
    own_broker.start()
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    assert value_of(admin, ResourceType.TOPIC, topic, "retention.ms") == ("77000", 1)
    assert value_of(admin, ResourceType.TOPIC, topic, "max.message.bytes") == ("2000", 3)
    assert value_of(admin, ResourceType.BROKER, "1", "message.max.bytes") == ("2000", 3)
    assert value_of(admin, ResourceType.TOPIC, topic, "retention.bytes") == ("9000", 2)
    assert produce(own_broker, topic, bytes(10_000)).code() == KafkaError.MSG_SIZE_TOO_LARGE
