"""Administration."""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.compat.confluent_kafka.groups import CLASSIC
from tests.compat.confluent_kafka.kafka import (
    TIMEOUT_S,
    Member,
    create_topic,
    error_of,
    new_admin,
    new_producer,
    numbers,
    produce,
    read_all,
)
from tests.compat.python_checks import Check


def admin_topics(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    admin = new_admin(check)

    def create(name: str, partitions: int = 1, replicas: int = 1, **config: str) -> str:
        made = NewTopic(
            name, partitions, replicas, config={key.replace("_", "."): text for key, text in config.items()}
        )
        return error_of(lambda: admin.create_topics([made])[name].result(TIMEOUT_S))

    def grow(name: str, partitions: int) -> str:
        return error_of(lambda: admin.create_partitions([NewPartitions(name, partitions)])[name].result(TIMEOUT_S))

    missing = check.name("missing")
    check.equal("create one that exists", create(topic), "TOPIC_ALREADY_EXISTS")
    check.equal("create with too many replicas", create(missing, replicas=1_000), "INVALID_REPLICATION_FACTOR")
    check.equal("create with a bad name", create("a/b"), "TOPIC_EXCEPTION")
    check.equal("create with a bad config", create(missing, cleanup_policy="nonsense"), "INVALID_CONFIG")
    check.equal("create with an unknown config", create(missing, no_such="1"), "INVALID_CONFIG")
    check.equal("grow to as many", grow(topic, 2), "INVALID_PARTITIONS")
    check.equal("grow a missing one", grow(missing, 3), "UNKNOWN_TOPIC_OR_PART")
    check.equal("grow", grow(topic, 5), "none")
    check.until("it has grown", lambda: len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 5)
    described = admin.describe_topics(ck.TopicCollection([topic]))[topic].result(TIMEOUT_S)
    check.equal("partitions", [partition.id for partition in described.partitions], [0, 1, 2, 3, 4])
    check.equal("replicas", {len(partition.replicas) for partition in described.partitions}, {1})
    check.equal("internal", described.is_internal, False)
    deleted = error_of(lambda: admin.delete_topics([missing])[missing].result(TIMEOUT_S))
    check.equal("delete a missing one", deleted, "UNKNOWN_TOPIC_OR_PART")
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    check.until("it is gone", lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics)


def admin_configs(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    admin = new_admin(check)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def config(name: str) -> tuple[str, bool]:
        described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return described[name].value, described[name].is_default

    def change(name: str, value: str | None, operation: Any) -> str:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        return error_of(lambda: admin.incremental_alter_configs([changed])[changed].result(TIMEOUT_S))

    check.equal("by default", config("retention.ms"), ("604800000", True))
    check.equal("set", change("retention.ms", "1000000", AlterConfigOpType.SET), "none")
    check.until("it is set", lambda: config("retention.ms") == ("1000000", False))
    check.equal("append", change("cleanup.policy", "compact", AlterConfigOpType.APPEND), "none")
    check.until("it is appended", lambda: config("cleanup.policy")[0] == "delete,compact")
    check.equal("subtract", change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT), "none")
    check.until("it is subtracted", lambda: config("cleanup.policy")[0] == "compact")
    check.equal("delete", change("retention.ms", None, AlterConfigOpType.DELETE), "none")
    check.until("it is deleted", lambda: config("retention.ms") == ("604800000", True))
    check.equal("a bad value", change("retention.ms", "soon", AlterConfigOpType.SET), "INVALID_CONFIG")
    check.equal("an unknown config", change("no.such", "1", AlterConfigOpType.SET), "INVALID_CONFIG")
    check.equal("limit", change("max.message.bytes", "2000", AlterConfigOpType.SET), "none")
    producer = new_producer(check)
    check.until(
        "a record above the topic's limit is refused",
        lambda: error_of(lambda: produce(producer, topic, ["x" * 3_000])) == "MSG_SIZE_TOO_LARGE",
    )
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    described = admin.describe_configs([broker])[broker].result(TIMEOUT_S)
    check.equal("a broker's config is read-only or not", described["log.dirs"].is_read_only, True)


def admin_groups(check: Check) -> None:
    topic, group = create_topic(check, "topic", 2), check.name("group")
    admin = new_admin(check)
    for partition in range(2):
        produce(new_producer(check), topic, numbers(0, 5), partition)
    member = Member(check, group, [topic], partition_assignment_strategy="range", **CLASSIC)

    def committed() -> list[int]:
        asked = ck.ConsumerGroupTopicPartitions(group)
        partitions = admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S).topic_partitions
        return [partition.offset for partition in sorted(partitions, key=lambda each: int(each.partition))]

    def alter(partition: int, offset: int) -> str:
        asked = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, partition, offset)])
        altered = admin.alter_consumer_group_offsets([asked])[group].result(TIMEOUT_S).topic_partitions
        return "none" if altered[0].error is None else str(altered[0].error.name())

    check.until("all is committed", lambda: committed() == [5, 5])
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(TIMEOUT_S).valid}
    check.equal(
        "listed",
        (listed[group].state, listed[group].type),
        (ck.ConsumerGroupState.STABLE, ck.ConsumerGroupType.CLASSIC),
    )
    empty = admin.list_consumer_groups(states={ck.ConsumerGroupState.EMPTY}).result(TIMEOUT_S).valid
    check.equal("among the empty ones", group in [each.group_id for each in empty], False)
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    check.equal("described", (described.state, described.partition_assignor), (ck.ConsumerGroupState.STABLE, "range"))
    [of_member] = described.members
    assigned = sorted(partition.partition for partition in of_member.assignment.topic_partitions)
    check.equal("assignment", assigned, [0, 1])
    check.equal("alter offsets while there are members", alter(0, 1), "UNKNOWN_MEMBER_ID")
    refused = error_of(lambda: admin.delete_consumer_groups([group])[group].result(TIMEOUT_S))
    check.equal("delete a group with members", refused, "NON_EMPTY_GROUP")
    member.leave()
    check.until(
        "the group is empty",
        lambda: admin.describe_consumer_groups([group])[group].result(TIMEOUT_S).state == ck.ConsumerGroupState.EMPTY,
    )
    check.equal("alter offsets of an empty group", alter(0, 1), "none")
    check.equal("offsets", committed(), [1, 5])
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    refused = error_of(lambda: admin.delete_consumer_groups([group])[group].result(TIMEOUT_S))
    check.equal("delete a group that is gone", refused, "GROUP_ID_NOT_FOUND")


def admin_offsets_and_records(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    admin = new_admin(check)
    partition = ck.TopicPartition(topic, 0)
    produce(new_producer(check), topic, numbers(0, 20))

    def offset(spec: Any) -> int:
        return int(admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset)

    check.equal("earliest and latest", (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())), (0, 20))
    check.equal("of the latest timestamp is in the log", 0 <= offset(OffsetSpec.max_timestamp()) < 20, True)
    upto = ck.TopicPartition(topic, 0, 7)
    deleted = admin.delete_records([upto])[upto].result(TIMEOUT_S)
    check.equal("low watermark", deleted.low_watermark, 7)
    check.equal("earliest", offset(OffsetSpec.earliest()), 7)
    check.equal("records", read_all(check, topic), numbers(7, 20))
    beyond = ck.TopicPartition(topic, 0, 21)
    refused = error_of(lambda: admin.delete_records([beyond])[beyond].result(TIMEOUT_S))
    check.equal("delete beyond the end", refused, "OFFSET_OUT_OF_RANGE")


def admin_cluster(check: Check) -> None:
    admin = new_admin(check)
    described = admin.describe_cluster().result(TIMEOUT_S)
    addresses = {node.id: f"{node.host}:{node.port}" for node in described.nodes}
    check.equal("controller is one of the nodes", described.controller.id in addresses, True)
    check.equal("addresses", [addresses[node_id] for node_id in sorted(addresses)], check.addresses)
    check.equal("cluster id", described.cluster_id, admin.list_topics(timeout=TIMEOUT_S).cluster_id)


def admin_access(check: Check) -> None:
    admin = new_admin(check)
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    refused = error_of(lambda: admin.describe_acls(everything).result(TIMEOUT_S))
    check.fact("access control lists without an authorizer", refused)
    check.equal("SCRAM users", admin.describe_user_scram_credentials().result(TIMEOUT_S), {})
