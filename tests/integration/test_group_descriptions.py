"""`fencepost groups describe` of every kind of group, with members of that kind."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from fencepost.cli.commands import fencepost
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from fencepost.protocol.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatTopology,
)
from fencepost.protocol.streams_topology import StreamsSubtopology
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until
from tests.support.wire import WireConnection

Unique = Callable[[str], str]
LIMIT_S = 60.0


def run(broker: BrokerProcess, *arguments: str) -> Any:
    return CliRunner().invoke(
        fencepost, ["groups", "describe", *arguments, "--bootstrap", broker.bootstrap], prog_name="fencepost"
    )


def described(broker: BrokerProcess, group: str, *options: str) -> list[dict[str, Any]]:
    result = run(broker, group, "--json", *options)
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


@contextmanager
def open_transaction(broker: BrokerProcess, topic: str) -> Iterator[None]:
    """Four records in partition 0: two that are stable, two of a transaction that is open meanwhile."""
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for value in ("1", "2"):
        plain.produce(topic, value, partition=0)
    assert plain.flush(60) == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in ("3", "4"):
        producer.produce(topic, value, partition=0)
    producer.flush(60)
    try:
        yield
    finally:
        producer.abort_transaction(60)


@contextmanager
def consuming(broker: BrokerProcess, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    """A member that has its partitions."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": f"{group}-client"}
        | {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    try:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + LIMIT_S
        while not consumer.assignment():
            assert time.monotonic() < deadline_s
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()


def test_behind_markers_aborted_and_deleted_records_nothing_is_left_to_read(
    broker: BrokerProcess, unique: Unique
) -> None:
    topic = group = unique("described-markers")
    run_create(broker, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        for value in range(5):
            producer.produce(topic, f"{number} {value}", partition=0)
        producer.flush(60)
        end(60)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})

    def lags(committed: int) -> tuple[int, int]:
        consumer.commit(offsets=[TopicPartition(topic, 0, committed)], asynchronous=False)
        (one,) = described(broker, group)
        return one["lag"], one["read_committed_lag"]

    until(lambda: lags(2) == (10, 3), timeout_s=60)
    assert lags(5) == (7, 0)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    deleted = admin.delete_records([TopicPartition(topic, 0, 4)])
    assert next(iter(deleted.values())).result(60).low_watermark == 4
    assert lags(2) == (10, 1)
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_consumers_shows_members_offsets_and_both_lags(
    broker: BrokerProcess, confluent: Any, unique: Unique, protocol: str
) -> None:
    topic = group = unique(f"described-{protocol}")
    run_create(broker, topic, 2)
    with open_transaction(broker, topic), consuming(broker, group, topic, group_protocol=protocol) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        first, second = described(broker, group)
        assert first == {
            "topic": topic,
            "partition": 0,
            "committed_offset": 1,
            "last_stable_offset": 2,
            "high_watermark": 4,
            "lag": 3,
            "read_committed_lag": 1,
            "member": f"{group}-client",
            "host": "127.0.0.1",
        }
        # No offset was committed there: what is read there is shown all the same.
        assert (second["partition"], second["committed_offset"], second["lag"]) == (1, None, None)
        assert (second["high_watermark"], second["member"]) == (0, f"{group}-client")
        (member,) = described(broker, group, "--members")
        assert (member["client_id"], member["host"]) == (f"{group}-client", "127.0.0.1")
        assert member["subscription"] == [topic]
        assert member["assignment"] == [f"{topic}-0", f"{topic}-1"]
        assert member["member_id"]
        # A consumer tells what it has been assigned in a heartbeat after that.
        until(lambda: "Reconciling" not in run(broker, group).stdout)
        headline = run(broker, group).stdout.splitlines()[0]
        assert headline.startswith(f"{group}: {protocol} group, Stable, 1 member, assigned by ")
        assert headline.endswith("range" if protocol == "classic" else "uniform, epoch 1") or protocol == "consumer"
    assert run(broker, group).stdout.startswith(f"{group}: {protocol} group, Empty, 0 members")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_has_committed_nothing_shows_its_members(
    broker: BrokerProcess, unique: Unique, protocol: str
) -> None:
    topic = group = unique(f"uncommitted-{protocol}")
    run_create(broker, topic, 1)
    with (
        consuming(broker, group, topic, group_protocol=protocol),
        consuming_without_partitions(broker, group, topic, protocol),
    ):
        wanted = [(topic, 0, None), (None, None, None)]

        def shown() -> list[tuple[Any, ...]]:
            rows = described(broker, group)
            return [(row["topic"], row["partition"], row["committed_offset"]) for row in rows if row["member"]]

        until(lambda: shown() == wanted)
        assert len(described(broker, group, "--members")) == 2


@contextmanager
def consuming_without_partitions(broker: BrokerProcess, group: str, topic: str, protocol: str) -> Iterator[None]:
    """A second member of a group with one partition. The first one is not polled, and keeps it or gives it away."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "group.protocol": protocol})
    try:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + LIMIT_S
        while len(described(broker, group, "--members")) < 2:
            assert time.monotonic() < deadline_s
            consumer.poll(0.1)
        yield
    finally:
        consumer.close()


def test_offsets_of_a_topic_that_was_deleted_are_shown_without_lag(
    broker: BrokerProcess, confluent: Any, unique: Unique
) -> None:
    topic = group = unique("deleted")
    run_create(broker, topic, 1)
    with consuming(broker, group, topic) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        (row,) = described(broker, group)
        assert (row["high_watermark"], row["lag"]) == (0, 0)
        confluent.delete_topics([topic])[topic].result(60)
        for row in described(broker, group):
            assert (row["high_watermark"], row["lag"]) == (None, None)


def test_a_share_group_shows_members_start_offsets_and_lag(
    broker: BrokerProcess, kafka_python: Any, unique: Unique
) -> None:
    topic = group = unique("described-share")
    run_create(broker, topic, 1)
    member_id = str(uuid.uuid4())
    kafka_python.list_group_offsets({group: None})  # asks for the coordinator, as real members do
    with WireConnection(broker.host, broker.port) as connection:

        def beat(epoch: int, **more: Any) -> ShareGroupHeartbeatResponse:
            beat = ShareGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **more)
            reply: ShareGroupHeartbeatResponse = connection.call(
                beat, ShareGroupHeartbeatResponse, 1, flexible_header=True
            )
            assert reply.error_code == 0, reply
            return reply

        epoch = beat(0, subscribed_topic_names=[topic]).member_epoch
        deadline_s = time.monotonic() + LIMIT_S
        while not (rows := described(broker, group)) or not rows[0]["topic"] or not rows[0]["member"]:
            assert time.monotonic() < deadline_s
            epoch = beat(epoch).member_epoch
            time.sleep(0.05)
        (row,) = rows
        assert (row["topic"], row["partition"], row["high_watermark"]) == (topic, 0, 0)
        assert row["member"] == "raw"
        assert {"start_offset", "lag"} <= row.keys()
        (member,) = described(broker, group, "--members")
        assert (member["member_id"], member["assignment"]) == (member_id, [f"{topic}-0"])
        assert run(broker, group).stdout.startswith(f"{group}: share group, Stable, 1 member, assigned by ")


def test_a_streams_group_shows_members_tasks_and_lag(broker: BrokerProcess, kafka_python: Any, unique: Unique) -> None:
    topic = group = unique("described-streams")
    run_create(broker, topic, 2)
    member_id = str(uuid.uuid4())
    kafka_python.list_group_offsets({group: None})  # asks for the coordinator, as real members do
    with WireConnection(broker.host, broker.port) as connection:

        def beat(epoch: int, **more: Any) -> StreamsGroupHeartbeatResponse:
            beat = StreamsGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **more)
            reply: StreamsGroupHeartbeatResponse = connection.call(
                beat, StreamsGroupHeartbeatResponse, 0, flexible_header=True
            )
            assert reply.error_code == 0, reply
            return reply

        nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        topology = StreamsGroupHeartbeatTopology(
            epoch=0, subtopologies=[StreamsSubtopology(subtopology_id="0", source_topics=[topic])]
        )
        joined = beat(0, rebalance_timeout_ms=60_000, topology=topology, process_id="p", client_tags=[], **nothing)
        deadline_s = time.monotonic() + LIMIT_S
        epoch, active = joined.member_epoch, joined.active_tasks
        while not active:
            assert time.monotonic() < deadline_s
            reply = beat(epoch, **nothing)
            epoch, active = reply.member_epoch, reply.active_tasks
            time.sleep(0.1)
        beat(epoch, active_tasks=active, standby_tasks=[], warmup_tasks=[])
        rows = described(broker, group)
        assert [(row["topic"], row["partition"], row["member"]) for row in rows] == [
            (topic, 0, "raw"),
            (topic, 1, "raw"),
        ]
        assert {row["lag"] for row in rows} == {None}
        (member,) = described(broker, group, "--members")
        assert member["tasks"] == ["0_0", "0_1"]
        assert member["assignment"] == [f"{topic}-0", f"{topic}-1"]
        assert run(broker, group).stdout.startswith(f"{group}: streams group, ")


def test_a_group_that_does_not_exist_is_named(broker: BrokerProcess) -> None:
    result = run(broker, "nobody")
    assert result.exit_code == 1
    assert "there is no group 'nobody'; `fencepost groups list` shows which there are" in result.stderr


def run_create(broker: BrokerProcess, topic: str, partitions: int) -> None:
    created = CliRunner().invoke(
        fencepost,
        ["topics", "create", topic, "--partitions", str(partitions), "--bootstrap", broker.bootstrap],
        prog_name="fencepost",
    )
    assert created.exit_code == 0, created.output
