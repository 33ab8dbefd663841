"""A broker with an authorizer, as users meet it: real clients that are refused, and rules that come and go under them.

No listener authenticates, so all clients are User:ANONYMOUS; a rule for a resource takes it away from everyone else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclBindingFilter, AdminClient, ResourcePatternType
from confluent_kafka.admin import AclOperation as ConfluentOperation
from confluent_kafka.admin import AclPermissionType as ConfluentPermission
from confluent_kafka.admin import ResourceType as ConfluentResource
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from fencepost.cli.commands import fencepost
from tests.support.admin_client import TIMEOUT_S, create
from tests.support.broker_process import BrokerProcess
from tests.support.secured_broker import STANDARD_AUTHORIZER

pytestmark = pytest.mark.integration

ANONYMOUS, NOBODY = "User:ANONYMOUS", "User:nobody"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """All clients may do everything with a resource until there is a rule for it."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with BrokerProcess(tmp_path_factory.mktemp("secured"), settings=settings) as process:
        client = KafkaAdminClient(bootstrap_servers=process.bootstrap)
        # Or the first rule for the cluster would take it away from all who have none.
        of_cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
        client.create_acls([ACL(ANONYMOUS, "*", ACLOperation.ALL, ACLPermissionType.ALLOW, of_cluster)])
        client.close()
        yield process


@pytest.fixture
def admin(secured: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=secured.bootstrap)
    yield client
    client.close()


@pytest.fixture
def run(secured: BrokerProcess) -> Callable[..., Result]:
    def run_here(*arguments: str) -> Result:
        return CliRunner().invoke(
            fencepost, arguments, env={"FENCEPOST_BOOTSTRAP": secured.bootstrap}, prog_name="fencepost"
        )

    return run_here


def topic_rule(topic: str, operation: ACLOperation, permission: ACLPermissionType, principal: str = ANONYMOUS) -> ACL:
    return ACL(
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
        resource_pattern=ResourcePattern(ResourceType.TOPIC, topic),
    )


def test_kafka_python_adds_finds_and_deletes_rules(admin: KafkaAdminClient, unique: Callable[[str], str]) -> None:
    topic = unique("ruled")
    rules = [
        topic_rule(topic, ACLOperation.READ, ACLPermissionType.ALLOW),
        topic_rule(topic, ACLOperation.WRITE, ACLPermissionType.DENY, NOBODY),
    ]
    created = admin.create_acls(rules)
    assert (created["succeeded"], created["failed"]) == (rules, [])
    everything = ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(ResourceType.TOPIC, topic, ACLResourcePatternType.ANY),
    )
    found, _ = admin.describe_acls(everything)
    assert {(rule.principal, rule.operation) for rule in found} == {
        (ANONYMOUS, ACLOperation.READ),
        (NOBODY, ACLOperation.WRITE),
    }
    ((_, deleted, _),) = admin.delete_acls([everything])
    assert len(deleted) == 2
    assert admin.describe_acls(everything)[0] == []


def test_confluent_kafka_describes_rules(
    secured: BrokerProcess, admin: KafkaAdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("described")
    admin.create_acls([topic_rule(topic, ACLOperation.READ, ACLPermissionType.ALLOW)])
    client = AdminClient({"bootstrap.servers": secured.bootstrap})
    wanted = AclBindingFilter(
        ConfluentResource.TOPIC,
        topic,
        ResourcePatternType.MATCH,
        None,
        None,
        ConfluentOperation.ANY,
        ConfluentPermission.ANY,
    )
    (found,) = client.describe_acls(wanted).result(TIMEOUT_S)
    assert (found.name, found.principal, found.operation) == (topic, ANONYMOUS, ConfluentOperation.READ)


def test_a_producer_that_loses_its_right_is_refused_at_once_and_goes_on_when_it_is_back(
    secured: BrokerProcess, admin: KafkaAdminClient, unique: Callable[[str], str]
) -> None:
    topic = unique("written")
    create(AdminClient({"bootstrap.servers": secured.bootstrap}), topic)
    denied = topic_rule(topic, ACLOperation.WRITE, ACLPermissionType.DENY)
    producer = KafkaProducer(bootstrap_servers=secured.bootstrap, enable_idempotence=False)
    try:
        for _ in range(5):
            producer.send(topic, b"v").get(TIMEOUT_S)
        admin.create_acls([denied])
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(topic, b"refused").get(TIMEOUT_S)
        admin.delete_acls([_filter_of(denied)])
        assert producer.send(topic, b"v").get(TIMEOUT_S).offset == 5
    finally:
        producer.close()


def _filter_of(rule: ACL) -> ACLFilter:
    pattern = rule.resource_pattern
    return ACLFilter(
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission_type,
        resource_pattern=ResourcePatternFilter(pattern.resource_type, pattern.resource_name, pattern.pattern_type),
    )


def test_a_consumer_needs_its_group_and_its_topic(
    secured: BrokerProcess, admin: KafkaAdminClient, unique: Callable[[str], str]
) -> None:
    topic, group = unique("read"), unique("group")
    create(AdminClient({"bootstrap.servers": secured.bootstrap}), topic)
    producer = Producer({"bootstrap.servers": secured.bootstrap})
    producer.produce(topic, b"value")
    assert producer.flush(TIMEOUT_S) == 0
    admin.create_acls(
        [
            topic_rule(topic, ACLOperation.READ, ACLPermissionType.ALLOW, NOBODY),
            ACL(
                principal=NOBODY,
                host="*",
                operation=ACLOperation.READ,
                permission_type=ACLPermissionType.ALLOW,
                resource_pattern=ResourcePattern(ResourceType.GROUP, group),
            ),
        ]
    )
    options = {"bootstrap_servers": secured.bootstrap, "auto_offset_reset": "earliest"}
    with_group = KafkaConsumer(topic, group_id=group, **options)
    with pytest.raises((GroupAuthorizationFailedError, TopicAuthorizationFailedError)):
        with_group.poll(60_000)
    with_group.close(autocommit=False)
    alone = KafkaConsumer(**options)
    alone.assign([KafkaPythonPartition(topic, 0)])
    assert alone.poll(2_000) == {}
    admin.create_acls([topic_rule(topic, ACLOperation.READ, ACLPermissionType.ALLOW)])
    assert [record.value for records in alone.poll(60_000).values() for record in records] == [b"value"]
    alone.close()


def test_a_transaction_needs_its_transactional_id(
    secured: BrokerProcess, run: Callable[..., Result], unique: Callable[[str], str]
) -> None:
    name = unique("tx")
    added = run("acls", "add", "--allow-principal", NOBODY, "--transactional-id", name, "--operation", "Write")
    assert added.exit_code == 0, added.output
    producer = Producer({"bootstrap.servers": secured.bootstrap, "transactional.id": name})
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    run("acls", "add", "--allow-principal", ANONYMOUS, "--transactional-id", name)
    topic = unique("out")
    create(AdminClient({"bootstrap.servers": secured.bootstrap}), topic)
    again = Producer({"bootstrap.servers": secured.bootstrap, "transactional.id": name})
    again.init_transactions(TIMEOUT_S)
    again.begin_transaction()
    again.produce(topic, b"v")
    again.commit_transaction(TIMEOUT_S)
    consumer = Consumer(
        {"bootstrap.servers": secured.bootstrap, "group.id": unique("g"), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"v"
    consumer.close()


# The command line


def test_the_command_line_adds_lists_and_removes_rules(
    run: Callable[..., Result], unique: Callable[[str], str]
) -> None:
    topic, group = unique("t"), unique("g")
    options = ("--allow-principal", "User:alice", "--consumer", "--topic", topic, "--group", group)
    assert run("acls", "add", *options).exit_code == 0
    listed = json.loads(run("acls", "list", "--topic", topic, "--group", group, "--json").stdout)
    assert {(row["resource_type"], row["operation"]) for row in listed} == {
        ("topic", "Read"),
        ("topic", "Describe"),
        ("group", "Read"),
    }
    assert {row["principal"] for row in listed} == {"User:alice"}
    mine = json.loads(run("acls", "list", "--principal", "User:alice", "--json").stdout)
    assert [row for row in mine if row["resource_name"] in (topic, group)] == listed
    removed = run("acls", "remove", *options, "--yes")
    assert removed.exit_code == 0, removed.output
    assert run("acls", "list", "--topic", topic).stdout == "no ACLs\n"


def test_prefixes_denials_hosts_and_producers_are_options_too(
    run: Callable[..., Result], unique: Callable[[str], str]
) -> None:
    prefix = unique("pre")
    added = run(
        "acls", "add", "--allow-principal", "User:a", "--deny-principal", "User:b", "--deny-host", "10.0.0.9",
        "--topic", prefix, "--resource-pattern-type", "prefixed", "--producer", "--idempotent", "--json",
    )  # fmt: skip
    assert added.exit_code == 0, added.output
    rows = json.loads(added.stdout)
    of_topic = {(row["permission"], row["host"], row["operation"]) for row in rows if row["resource_type"] == "topic"}
    assert of_topic == {
        (permission, host, operation)
        for permission, host in (("allow", "*"), ("deny", "10.0.0.9"))
        for operation in ("Write", "Describe", "Create")
    }
    assert {(row["resource_name"], row["pattern"]) for row in rows if row["resource_type"] == "cluster"} == {
        ("kafka-cluster", "literal")
    }
    found = json.loads(run("acls", "list", "--topic", f"{prefix}-7", "--json").stdout)
    assert {row["resource_name"] for row in found} == {prefix}
    assert run("acls", "remove", "--topic", prefix, "--resource-pattern-type", "prefixed", "--force").exit_code == 0
    removed = run(
        "acls", "remove", "--allow-principal", "User:a", "--cluster", "--operation", "IdempotentWrite", "--force"
    )
    assert removed.exit_code == 0
    assert "User:a" in removed.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "--allow-principal", "User:a"], "name a resource"),
        (["add", "--topic", "t"], "name a principal"),
        (["add", "--topic", "t", "--allow-principal", "User:a", "--idempotent"], "--idempotent goes with --producer"),
        (
            ["add", "--topic", "t", "--allow-principal", "User:a", "--producer", "--operation", "Read"],
            "leave --operation out",
        ),
        (["remove"], "name a resource"),
        (["add", "--topic", "t", "--allow-principal", "alice"], "Could not parse principal from `alice`"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    run: Callable[..., Result], arguments: list[str], message: str
) -> None:
    refused = run("acls", *arguments)
    assert refused.exit_code != 0
    assert message in refused.output


def test_removing_asks_first(run: Callable[..., Result], unique: Callable[[str], str]) -> None:
    topic = unique("kept")
    run("acls", "add", "--allow-principal", "User:a", "--topic", topic)
    asked = run("acls", "remove", "--topic", topic)
    assert asked.exit_code != 0
    assert topic in run("acls", "list", "--topic", topic).stdout


# The settings


def test_another_authorizer_is_refused_at_the_start(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, settings={"authorizer.class.name": "com.example.Own"})
    with pytest.raises(Exception, match=r"authorizer\.class\.name"):
        process.start()


def test_rules_survive_a_crash_and_refusals_are_in_the_log(tmp_path: Path, unique: Callable[[str], str]) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    topic = unique("kept")
    with BrokerProcess(tmp_path, settings=settings) as process:
        create(AdminClient({"bootstrap.servers": process.bootstrap}), topic)
        client = KafkaAdminClient(bootstrap_servers=process.bootstrap)
        client.create_acls([topic_rule(topic, ACLOperation.ALL, ACLPermissionType.ALLOW, NOBODY)])
        client.close()
        process.restart_after_kill()
        producer = KafkaProducer(bootstrap_servers=process.bootstrap)
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(topic, b"v", partition=0).get(TIMEOUT_S)
        producer.close(1)
        process.wait_for_output(rf"refused.*{topic}")
