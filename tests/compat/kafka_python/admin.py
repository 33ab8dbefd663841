"""Administration: what both releases can do, and what only release 3 can."""

from __future__ import annotations

from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.structs import OffsetAndMetadata

from tests.compat.kafka_python.kafka import (
    VERSION,
    Member,
    create_topic,
    error_of,
    new_admin,
    numbers,
    produce,
    read_all,
    write,
)
from tests.compat.kafka_python.transactions import transactional_producer
from tests.compat.python_checks import Check


def admin_topics(check: Check) -> None:
    topic, missing = create_topic(check, "topic", 2), check.name("missing")
    admin = new_admin(check)

    def create(name: str, partitions: int = 1, replicas: int = 1, **config: str) -> str:
        configs = {key.replace("_", "."): text for key, text in config.items()}
        return error_of(lambda: admin.create_topics([NewTopic(name, partitions, replicas, topic_configs=configs)]))

    def grow(name: str, partitions: int) -> str:
        return error_of(lambda: admin.create_partitions({name: NewPartitions(partitions)}))

    check.equal("create one that exists", create(topic), "TopicAlreadyExistsError")
    check.equal("create with too many replicas", create(missing, replicas=1_000), "InvalidReplicationFactorError")
    check.equal("create without partitions", create(missing, partitions=0), "InvalidPartitionsError")
    check.equal("create with a bad name", create("a/b"), "InvalidTopicError")
    check.equal("create with a bad config", create(missing, cleanup_policy="nonsense"), "InvalidConfigurationError")
    check.equal("grow to as many", grow(topic, 2), "InvalidPartitionsError")
    check.equal("grow a missing one", grow(missing, 3), "UnknownTopicOrPartitionError")
    check.equal("grow", grow(topic, 5), "none")
    check.until("it has grown", lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 5)
    check.equal(
        "delete a missing one", error_of(lambda: admin.delete_topics([missing])), "UnknownTopicOrPartitionError"
    )
    admin.delete_topics([topic])
    check.until("it is gone", lambda: topic not in admin.list_topics())
    admin.close()


def admin_configs(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    admin = new_admin(check)

    def config(name: str) -> tuple[object, bool]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        if VERSION >= 3:
            found = admin.describe_configs([resource], config_filter="all")["topic"][topic][name]
            return found["value"], found["config_source"] == "DEFAULT_CONFIG"
        [response] = admin.describe_configs([resource])
        [(_code, _message, _type, _name, entries)] = response.resources
        [found] = [entry for entry in entries if entry[0] == name]
        return found[1], found[3] == 5  # DEFAULT_CONFIG

    check.equal("by default", config("retention.ms"), ("604800000", True))
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "1000000"})])
    check.until("it is set", lambda: config("retention.ms") == ("1000000", False))
    admin.close()


def admin_groups(check: Check) -> None:
    topic, group = create_topic(check, "topic", 2), check.name("group")
    admin = new_admin(check)
    for partition in range(2):
        write(check, topic, numbers(0, 5), partition)
    member = Member(check, group, [topic])

    def committed() -> dict[int, int]:
        if VERSION >= 3:
            found = admin.list_group_offsets({group: None})[group]
        else:
            found = admin.list_consumer_group_offsets(group)
        return {partition.partition: entry.offset for partition, entry in found.items()}

    def state() -> tuple[str, str, int]:
        if VERSION >= 3:
            described = admin.describe_groups([group])[group]
            return described["group_state"], described["protocol_type"], len(described["members"])
        [described] = admin.describe_consumer_groups([group])
        return described.state, described.protocol_type, len(described.members)

    def delete() -> str:
        if VERSION >= 3:
            return error_of(lambda: admin.delete_groups([group]))
        [(_group, error)] = admin.delete_consumer_groups([group])
        return "none" if error.errno == 0 else str(error.__name__)

    check.until("all is committed", lambda: committed() == {0: 5, 1: 5})
    check.equal("described", state(), ("Stable", "consumer", 1))
    if VERSION >= 3:
        listed = [each["group_id"] for each in admin.list_groups(states_filter=["Stable"])]
    else:
        listed = [each[0] for each in admin.list_consumer_groups()]
    check.equal("listed", group in listed, True)
    check.fact("delete a group with members", delete())
    check.equal("members after that", state()[2], 1)
    member.leave()
    check.until("the group is empty", lambda: state()[0] == "Empty")
    check.equal("delete", delete(), "none")
    check.fact("delete a group that is gone", delete())
    admin.close()


def admin_delete_records(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    write(check, topic, numbers(0, 20))
    admin = new_admin(check)
    whole = TopicPartition(topic, 0)
    admin.delete_records({whole: 7})
    check.equal("records", read_all(check, topic), numbers(7, 20))
    refused = error_of(lambda: admin.delete_records({whole: 21}))
    check.equal("delete beyond the end", refused, "OffsetOutOfRangeError")
    admin.close()


def admin_cluster(check: Check) -> None:
    admin = new_admin(check)
    described: Any = admin.describe_cluster()
    id_field = "broker_id" if VERSION >= 3 else "node_id"
    addresses = {node[id_field]: f"{node['host']}:{node['port']}" for node in described["brokers"]}
    check.equal("controller is one of the nodes", described["controller_id"] in addresses, True)
    check.equal("addresses", [addresses[node_id] for node_id in sorted(addresses)], check.addresses)
    check.equal("the cluster has an id", bool(described["cluster_id"]), True)
    admin.close()


def admin_group_offsets(check: Check) -> None:
    topic, group = create_topic(check, "topic", 2), check.name("group")
    admin = new_admin(check)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for _ in check.turns("the group has a coordinator"):  # of several nodes, another may come to be it
        altered = admin.alter_group_offsets(group, {each: OffsetAndMetadata(3, "", -1) for each in (first, second)})
        errors = {each: error.__name__ for each, error in altered.items()}
        if "NotCoordinatorError" not in errors.values():
            break
    check.equal("alter", errors, dict.fromkeys((first, second), "NoError"))
    deleted = admin.delete_group_offsets(group, [second])
    check.equal("delete", deleted[second].__name__, "NoError")
    left = {each: offset.offset for each, offset in admin.list_group_offsets({group: None})[group].items()}
    check.equal("offsets that are left", left, {first: 3})
    admin.close()


def admin_transactions(check: Check) -> None:
    topic, transactional = create_topic(check, "topic", 1), check.name("transaction")
    admin = new_admin(check)
    producer = transactional_producer(check)
    producer.begin_transaction()
    produce(producer, topic, numbers(0, 3))
    whole = TopicPartition(topic, 0)
    described = admin.describe_transactions([transactional])[transactional]
    check.equal("open", (str(described.state.value), list(described.topic_partitions)), ("Ongoing", [whole]))
    [active] = admin.describe_producers([whole])[whole].active_producers
    check.equal("producer", (active.producer_id, active.last_sequence), (described.producer_id, 2))
    listed = [each.transactional_id for found in admin.list_transactions().values() for each in found]
    check.equal("listed", transactional in listed, True)
    producer.commit_transaction()
    producer.close()
    check.until(
        "it is complete",
        lambda: admin.describe_transactions([transactional])[transactional].state.value == "CompleteCommit",
    )
    refused = error_of(lambda: admin.describe_transactions([check.name("missing")]))
    check.equal("a missing transaction", refused, "TransactionalIdNotFoundError")
    admin.close()
