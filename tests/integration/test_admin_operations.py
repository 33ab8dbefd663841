"""What administrators do with records, directories, quotas and the like, with the admin clients of kafka-python and
confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient, UpdateFeatureType

from fencepost.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntryData,
    EntityData,
    OpData,
)
from tests.support.admin_client import TIMEOUT_S, create
from tests.support.broker_process import BrokerProcess
from tests.support.wire import WireConnection


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def earliest(admin: AdminClient, topic: str) -> int:
    wanted = TopicPartition(topic, 0)
    found = admin.list_offsets({wanted: OffsetSpec.earliest()})
    offset: int = found[wanted].result(TIMEOUT_S).offset
    return offset


# DeleteRecords


def test_records_are_deleted_and_stay_so_over_a_crash(own_broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    topic = unique("deleted")
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    create(admin, topic)
    produce(own_broker, topic, 10)
    (done,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert done.result(TIMEOUT_S).low_watermark == 4
    assert earliest(admin, topic) == 4
    own_broker.kill()
    own_broker.start()
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    assert earliest(admin, topic) == 4
    (refused,) = admin.delete_records([TopicPartition(topic, 0, 11)]).values()
    with pytest.raises(KafkaException) as raised:
        refused.result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_kafka_python_deletes_records(
    broker: BrokerProcess, kafka_python: KafkaAdminClient, confluent: AdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("deleted")
    create(confluent, topic)
    produce(broker, topic, 10)
    kafka_python.delete_records({KafkaPythonPartition(topic, 0): 7})
    assert earliest(confluent, topic) == 7


# Directories, leaders, quorum


def test_kafka_python_sees_directories_leaders_and_the_quorum(
    broker: BrokerProcess, kafka_python: KafkaAdminClient, confluent: AdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("placed")
    create(confluent, topic, 2)
    produce(broker, topic, 10)
    (directory,) = (found for described in kafka_python.describe_log_dirs() for found in described["log_dirs"])
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
    sizes = {
        (found["name"], partition["partition_index"]): partition["partition_size"]
        for found in directory["topics"]
        for partition in found["partitions"]
    }
    assert sizes[topic, 0] > sizes[topic, 1] == 0
    assert kafka_python.list_partition_reassignments() == {}
    quorum = kafka_python.describe_metadata_quorum()
    assert "1" in str(quorum)


def test_no_other_node_can_be_elected(confluent: AdminClient, unique: Callable[[str], str]) -> None:
    topic = unique("placed")
    create(confluent, topic)
    partition = TopicPartition(topic, 0)
    elected = confluent.elect_leaders(ElectionType.PREFERRED, [partition]).result(TIMEOUT_S)
    assert elected[partition].code() == KafkaError.ELECTION_NOT_NEEDED


# Access


def test_there_is_no_authorizer(confluent: AdminClient) -> None:
    rule = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (created,) = confluent.create_acls([rule]).values()
    with pytest.raises(KafkaException, match="No Authorizer is configured") as raised:
        created.result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.SECURITY_DISABLED


# Quotas


def alter_quota(broker: BrokerProcess, client_id: str, key: str, value: float) -> None:
    """With a plain request: neither Python client has a call for it."""
    request = AlterClientQuotasRequest(
        entries=[
            AlterEntryData(
                entity=[EntityData(entity_type="client-id", entity_name=client_id)], ops=[OpData(key=key, value=value)]
            )
        ]
    )
    host, _, port = broker.bootstrap.partition(":")
    with WireConnection(host, int(port)) as connection:
        (answer,) = connection.call(request, AlterClientQuotasResponse, 1, flexible_header=True).entries
    assert (answer.error_code, answer.error_message) == (0, None)


def test_a_producer_over_its_quota_is_throttled_and_sees_the_throttle_time(
    broker: BrokerProcess, confluent: AdminClient, unique: Callable[[str], str]
) -> None:
    topic, client_id = unique("limited"), unique("client")
    create(confluent, topic)
    alter_quota(broker, client_id, "producer_byte_rate", 50_000)

    def duration_s(name: str) -> tuple[float, list[float]]:
        throttled: list[float] = []
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": name,
                "batch.size": 20_000,
                "throttle_cb": lambda event: throttled.append(event.throttle_time),
            }
        )
        started_s = time.monotonic()
        for _ in range(700):
            producer.produce(topic, bytes(1000))
            producer.poll(0)
        assert producer.flush(60) == 0
        return time.monotonic() - started_s, throttled

    taken_s, throttled = duration_s(client_id)
    assert taken_s > 2  # 500 kB may come in a burst, the rest not
    assert throttled
    taken_s, throttled = duration_s(unique("client"))
    assert not throttled


# Features and credentials


def test_features_and_credentials_change_and_outlive_a_restart(own_broker: BrokerProcess) -> None:
    def with_kafka_python(do: Callable[[KafkaAdminClient], Any]) -> Any:
        client = KafkaAdminClient(bootstrap_servers=own_broker.bootstrap)
        try:
            return do(client)
        finally:
            client.close()

    def level(client: KafkaAdminClient) -> Any:
        return client.describe_features()["transaction.version"]["finalized"][1]

    assert with_kafka_python(level) == 2
    with_kafka_python(
        lambda client: client.update_features({"transaction.version": (UpdateFeatureType.SAFE_DOWNGRADE, 1)})
    )
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    credential = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
    )
    admin.alter_user_scram_credentials([credential])["alice"].result(TIMEOUT_S)
    own_broker.kill()
    own_broker.start()
    assert with_kafka_python(level) == 1
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    described = admin.describe_user_scram_credentials(["alice"])["alice"].result(TIMEOUT_S)
    assert [(found.mechanism, found.iterations) for found in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    Producer({"bootstrap.servers": own_broker.bootstrap, "transactional.id": "older"}).init_transactions(TIMEOUT_S)
