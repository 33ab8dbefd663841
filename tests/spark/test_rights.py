"""The rights that the page names suffice for the sink, and each missing one is an error that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from fencepost import Broker
from fencepost.spark import clients
from fencepost.spark.committing import Committer
from fencepost.spark.decisions import Batch
from fencepost.spark.messages import Chunk, Layout
from fencepost.spark.options import SinkOptions
from fencepost.spark.rights import NoRight
from fencepost.spark.writing import RecordRefused, Task, write
from tests.support.refused_connections import refused_connections_are_closed  # noqa: F401

pytestmark = pytest.mark.integration

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{LOGIN} username="admin" password="a" user_admin="a" user_spark="s";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "auto.create.topics.enable": "false",
}
LAYOUT = Layout({"value": 0}, "out")
BATCH = Batch("8cd0ef86-096d-4b7d-8237-fcb86ebd341a", 0)
DECISIONS = "fencepost-sink-orders"


class Right(NamedTuple):
    resource: str
    name: str
    operation: str

    def binding(self) -> AclBinding:
        pattern = ResourcePatternType.PREFIXED if self.name.endswith("-") else ResourcePatternType.LITERAL
        kind, operation = ResourceType[self.resource], AclOperation[self.operation]
        return AclBinding(kind, self.name, pattern, "User:spark", "*", operation, AclPermissionType.ALLOW)


OF_THE_DECISIONS = [Right("TOPIC", DECISIONS, name) for name in ("WRITE", "READ", "CREATE", "DESCRIBE_CONFIGS")]
OF_THE_IDS = Right("TRANSACTIONAL_ID", "orders-", "WRITE")
OF_THE_RECORDS = Right("TOPIC", "out", "WRITE")
RIGHTS = [OF_THE_RECORDS, *OF_THE_DECISIONS, OF_THE_IDS]


@contextmanager
def secured(folder: Path, rights: list[Right], topics: tuple[str, ...] = ("out",)) -> Iterator[SinkOptions]:
    """The options of a user with some rights, at a broker that creates no topics by itself."""
    with Broker(folder / "data", settings=SETTINGS) as broker:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        admin = AdminClient(
            {"bootstrap.servers": broker.bootstrap_servers, **login, "sasl.username": "admin", "sasl.password": "a"}
        )
        if topics:
            for created in admin.create_topics([NewTopic(topic, 1) for topic in topics]).values():
                created.result(10)
        for granted in admin.create_acls([right.binding() for right in rights]).values():
            granted.result(10)
        yield SinkOptions.read(
            {
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                **{f"kafka.{name}": value for name, value in login.items()},
                "kafka.sasl.jaas.config": f'{LOGIN} username="spark" password="s";',
                "kafka.log_level": "0",
                "kafka.topic.metadata.propagation.max.ms": "500",
                "topic": "out",
                "sink": "orders",
            }
        )


@pytest.fixture(autouse=True)
def clients_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(clients, "_kept", kept)
    yield
    for client, _ in kept.values():
        client.close()


def write_a_batch(options: SinkOptions) -> None:
    chunks = iter([Chunk([b"a", b"b"], None, None, None, None)])
    report = write(options, LAYOUT, Task("orders", BATCH, "3f9a1c02", 0, 0), chunks)
    Committer(options, "orders").commit(BATCH, [report], LAYOUT)


def test_the_rights_of_the_page_suffice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with secured(tmp_path, RIGHTS) as options:
        write_a_batch(options)
    assert "rows=2 transactions=1" in capsys.readouterr().err


@pytest.mark.parametrize("missing", [*OF_THE_DECISIONS, OF_THE_IDS], ids=lambda right: f"{right[0]}-{right[2]}")
def test_a_missing_right_is_named(tmp_path: Path, missing: Right) -> None:
    with (
        secured(tmp_path, [right for right in RIGHTS if right != missing]) as options,
        pytest.raises(NoRight, match=f"the broker denies the sink 'orders' a right.*{missing.name}"),
    ):
        write_a_batch(options)


def test_a_missing_right_to_write_the_records_refuses_the_first_record(tmp_path: Path) -> None:
    with (
        secured(tmp_path, [right for right in RIGHTS if right != OF_THE_RECORDS]) as options,
        pytest.raises(RecordRefused, match="Topic authorization failed"),
    ):
        write_a_batch(options)


def test_a_topic_that_does_not_exist_refuses_its_records_by_name(tmp_path: Path) -> None:
    with (
        secured(tmp_path, RIGHTS, topics=()) as options,
        pytest.raises(RecordRefused, match=r"Unknown topic( or partition)? \(topic out\)"),
    ):
        write_a_batch(options)
