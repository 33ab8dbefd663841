"""What a coordinator answers, and when, while PostgreSQL does not: raw requests, each on a connection of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.support.clients_of_processes import SETTINGS, until
from tests.support.machines import Machine, Machines
from tests.support.object_server import object_server
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.wire import WireConnection

pytestmark = pytest.mark.integration

CLIENTS_TIMEOUT_S = 30.0
"""How long Java's clients wait for an answer, by default."""


class Asked(NamedTuple):
    """A request. error_of: the error code in its answer."""

    name: str
    request: Any
    response_type: type[Any]
    version: int
    flexible_header: bool
    error_of: Callable[[Any], int]


class Outcome(NamedTuple):
    """error: None where the broker has closed the connection in place of an answer. after_s: since it was asked."""

    error: ErrorCode | None
    after_s: float


def ask(machine: Machine, asked: Asked, timeout_s: float = CLIENTS_TIMEOUT_S) -> Outcome:
    """Raises TimeoutError."""
    began_s = time.monotonic()
    with WireConnection(machine.host, machine.port, timeout_s=timeout_s) as connection:
        try:
            answer = connection.call(
                asked.request, asked.response_type, asked.version, flexible_header=asked.flexible_header
            )
        except AssertionError:
            return Outcome(None, time.monotonic() - began_s)
    return Outcome(ErrorCode(asked.error_of(answer)), time.monotonic() - began_s)


def own_error(answer: Any) -> int:
    return int(answer.error_code)


def find_coordinator(key_type: int = 0) -> Asked:
    return Asked(
        "FindCoordinator",
        FindCoordinatorRequest(key="billing", key_type=key_type),
        FindCoordinatorResponse,
        2,
        False,
        own_error,
    )


def init_producer_id(transactional_id: str) -> Asked:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return Asked("InitProducerId", request, InitProducerIdResponse, 1, False, own_error)


def end_transaction(identity: tuple[str, int, int]) -> Asked:
    return Asked("EndTxn", EndTxnRequest(*identity, True), EndTxnResponse, 2, False, own_error)


def add_partition(identity: tuple[str, int, int]) -> Asked:
    topics = [AddPartitionsToTxnTopic("orders", [0])]
    request = AddPartitionsToTxnRequest([], *identity, topics)
    return Asked(
        "AddPartitionsToTxn",
        request,
        AddPartitionsToTxnResponse,
        2,
        False,
        lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
    )


def commit_offset(offset: int) -> Asked:
    partitions = [OffsetCommitRequestPartition(0, offset)]
    request = OffsetCommitRequest("billing", topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)])
    return Asked(
        "OffsetCommit",
        request,
        OffsetCommitResponse,
        5,
        False,
        lambda answer: answer.topics[0].partitions[0].error_code,
    )


def fetch_offset() -> Asked:
    request = OffsetFetchRequest("billing", [OffsetFetchRequestTopic("orders", [0])])
    return Asked("OffsetFetch", request, OffsetFetchResponse, 5, False, own_error)


def join_group(group_id: str) -> Asked:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    request = JoinGroupRequest(group_id, 30_000, 30_000, "", None, "consumer", protocols)
    return Asked("JoinGroup", request, JoinGroupResponse, 3, False, own_error)


def heartbeat(group_id: str) -> Asked:
    return Asked("Heartbeat", HeartbeatRequest(group_id, 1, "nobody"), HeartbeatResponse, 2, False, own_error)


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with postgres_server(is_durable=True) as server:
        yield server


@pytest.fixture(scope="module")
def machine(database: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    directory = tmp_path_factory.mktemp("machine")
    settings = {**SETTINGS, "group.initial.rebalance.delay.ms": "0"}
    with (
        object_server(directory / "objects") as objects,
        Machines(database.cluster_url(), objects.make_bucket(), directory, 1, settings=settings) as machines,
    ):
        admin = AdminClient({"bootstrap.servers": machines.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        for key_type in (0, 1):
            settled(machines[1], find_coordinator(key_type))
        yield machines[1]


def settled(machine: Machine, asked: Asked) -> None:
    """Ask as clients do, until the answer is no error."""
    until(lambda: ask(machine, asked).error is ErrorCode.NONE)


def begin_transaction(machine: Machine, transactional_id: str) -> tuple[str, int, int]:
    asked = init_producer_id(transactional_id)
    settled(machine, asked)
    with WireConnection(machine.host, machine.port) as connection:
        answer = connection.call(asked.request, asked.response_type, asked.version, flexible_header=False)
    identity = transactional_id, answer.producer_id, answer.producer_epoch
    settled(machine, add_partition(identity))
    return identity


def committed_offset(machine: Machine) -> int:
    settled(machine, fetch_offset())
    asked = fetch_offset()
    with WireConnection(machine.host, machine.port) as connection:
        answer = connection.call(asked.request, asked.response_type, asked.version, flexible_header=False)
    return int(answer.topics[0].partitions[0].committed_offset)


def all_asked(machine: Machine, requests: list[Asked]) -> tuple[dict[str, Outcome], list[threading.Thread]]:
    """Ask all side by side. The outcomes come as the threads end."""
    outcomes: dict[str, Outcome] = {}

    def one(asked: Asked) -> None:
        try:
            outcomes[asked.name] = ask(machine, asked)
        except TimeoutError:
            return

    threads = [threading.Thread(target=one, args=(asked,)) for asked in requests]
    for thread in threads:
        thread.start()
    return outcomes, threads


def test_x(machine: Machine, database: PostgresServer) -> None:
    settled(machine, commit_offset(5))
    till = begin_transaction(machine, "till")
    shop = begin_transaction(machine, "shop")
    with database.frozen():
        outcomes, threads = all_asked(
            machine,
            [
                find_coordinator(),
                init_producer_id("desk"),
                end_transaction(till),
                add_partition(shop),
                commit_offset(9),
                fetch_offset(),
                join_group("joined"),
                heartbeat("joined"),
            ],
        )
        time.sleep(12)
        during = dict(outcomes)
    for t in threads:
        t.join()
    print(during, outcomes)
    print(committed_offset(machine))
    raise AssertionError(f"{during}\n{outcomes}")
