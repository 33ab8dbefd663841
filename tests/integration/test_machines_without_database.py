"""What a coordinator answers, and when, while PostgreSQL does not: raw requests, each on a connection of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
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
from tests.support.clients_of_processes import SETTINGS
from tests.support.conditions import until
from tests.support.machines import Machine, Machines
from tests.support.object_server import object_server
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.wire import WireConnection

pytestmark = pytest.mark.integration

CLIENTS_TIMEOUT_S = 30.0
"""How long Java's clients wait for an answer, by default."""
CLIENTS_ASK_AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_MEMBER_ID,  # to the heartbeat of a member that has not joined
}


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


Outcomes = dict[str, Outcome]


def ask(machine: Machine, asked: Asked, timeout_s: float = CLIENTS_TIMEOUT_S) -> Outcome:
    """Raises TimeoutError."""
    began_s = time.monotonic()
    with WireConnection(machine.host, machine.port, timeout_s=timeout_s) as connection:
        try:
            answer = connection.call(
                asked.request, asked.response_type, asked.version, flexible_header=asked.flexible_header
            )
        except (AssertionError, ConnectionError):
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
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
    return Asked("InitProducerId", request, InitProducerIdResponse, 1, False, own_error)


def end_transaction(identity: tuple[str, int, int], *, committed: bool = True) -> Asked:
    return Asked("EndTxn", EndTxnRequest(*identity, committed), EndTxnResponse, 2, False, own_error)


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
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
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


def asked_while_frozen(machine: Machine, database: PostgresServer, requests: list[Asked], frozen_s: float) -> Outcomes:
    """Ask all side by side while PostgreSQL is frozen; those that got nothing in time are missing."""
    outcomes: Outcomes = {}

    def one(asked: Asked) -> None:
        with contextlib.suppress(TimeoutError):
            outcomes[asked.name] = ask(machine, asked)

    threads = [threading.Thread(target=one, args=(asked,)) for asked in requests]
    with database.frozen():
        for thread in threads:
            thread.start()
        time.sleep(frozen_s)
    for thread in threads:
        thread.join()
    return outcomes


def check_coordinators(machine: Machine, database: PostgresServer, frozen_s: float) -> None:
    settled(machine, commit_offset(5))
    till, shop = begin_transaction(machine, "till"), begin_transaction(machine, "shop")
    requests = [
        find_coordinator(),
        init_producer_id("desk"),
        end_transaction(till),
        add_partition(shop),
        commit_offset(9),
        fetch_offset(),
        join_group("joined"),
        heartbeat("joined"),
    ]
    outcomes = asked_while_frozen(machine, database, requests, frozen_s)
    assert outcomes.keys() == {asked.name for asked in requests}, "some had no answer within their clients' time-out"
    # In place of an answer, the connection was closed: the broker could not know that it leads.
    assert {outcome.error for outcome in outcomes.values()} <= {None, ErrorCode.NONE, *CLIENTS_ASK_AGAIN}, outcomes
    assert outcomes["FindCoordinator"].error is ErrorCode.NONE
    until(lambda: ask(machine, fetch_offset()).error is ErrorCode.NONE)
    if outcomes["OffsetCommit"].error is ErrorCode.NONE:
        assert committed_offset(machine) == 9
    for asked in (commit_offset(9), end_transaction(till), init_producer_id("desk"), end_transaction(shop)):
        settled(machine, asked)
    machine.restart_after_kill()
    assert committed_offset(machine) == 9
    # Committed: a late abort is refused.
    until(lambda: ask(machine, end_transaction(till, committed=False)).error is ErrorCode.INVALID_TXN_STATE)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("frozen_s", [0.5, 13.0])
def test_a_request_to_a_coordinator_ends_while_the_database_is_frozen(
    machine: Machine, database: PostgresServer, frozen_s: float
) -> None:
    check_coordinators(machine, database, frozen_s)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_request_to_a_coordinator_ends_while_the_database_is_frozen_for_a_minute(
    machine: Machine, database: PostgresServer
) -> None:
    check_coordinators(machine, database, 60.0)
