"""The worker against a broker: the usual case, a poison message, a rebalance in the middle, an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from shipping import DEAD_LETTERS, ORDERS, SHIPMENTS, Worker

PATIENCE_S = 60
POLL_MS = 10_000
"""A poll ends with its first records, so a long one costs nothing. A short one can end in the middle of a rebalance,
which leaves kafka-python 3.0 without partitions and heartbeats, for good."""


@pytest.fixture
def new_worker(fencepost) -> Iterator[Callable[[str], Worker]]:
    fencepost.topic(ORDERS, partitions=2)
    workers: list[Worker] = []

    def make(name: str = "worker") -> Worker:
        workers.append(Worker(fencepost.bootstrap_servers, name))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def work_until_done(fencepost, worker: Worker) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, "the worker does not finish"
        worker.work(timeout_ms=POLL_MS)
        if "shipping" in fencepost_groups(fencepost) and fencepost.group("shipping").total_lag == 0:
            return


def fencepost_groups(fencepost) -> set[str | None]:
    return {group for seen in fencepost.requests("OffsetCommit") for group in seen.groups}


def test_orders_become_shipments(fencepost, new_worker) -> None:
    fencepost.produce(ORDERS, '{"to": "Ada"}')
    work_until_done(fencepost, new_worker())
    assert [record.value for record in fencepost.records(SHIPMENTS)] == [b'{"to": "Ada"}']


def test_a_poison_message_is_put_aside_and_the_next_is_handled(fencepost, new_worker) -> None:
    fencepost.produce(ORDERS, "not JSON", '{"to": "Ada"}')
    work_until_done(fencepost, new_worker())
    (dead,) = fencepost.records(DEAD_LETTERS)
    assert (dead.value, dead.headers[0][0]) == (b"not JSON", "reason")
    assert [record.value for record in fencepost.records(SHIPMENTS)] == [b'{"to": "Ada"}']
    fencepost.wait_for_lag("shipping")


def test_a_worker_that_falls_silent_loses_its_partitions_to_another(fencepost, new_worker) -> None:
    fencepost.produce(ORDERS, '{"to": "Ada"}')
    silent = new_worker("silent")
    work_until_done(fencepost, silent)
    silent.consumer.config["heartbeat_interval_ms"] = 10**6
    with fencepost.hold("Heartbeat", client_id="silent", optional=True):
        fencepost.advance(minutes=1)  # no heartbeat came in this minute
    assert fencepost.group("shipping").members == ()
    fencepost.produce(ORDERS, '{"to": "Grace"}')
    work_until_done(fencepost, new_worker("other"))
    assert [member.client_id for member in fencepost.group("shipping").members] == ["other"]
    assert [record.value for record in fencepost.records(SHIPMENTS)] == [b'{"to": "Ada"}', b'{"to": "Grace"}']


def test_a_produce_that_is_refused_for_a_while_is_retried(fencepost, new_worker) -> None:
    fencepost.topic(SHIPMENTS)
    fencepost.produce(ORDERS, '{"to": "Ada"}')
    refused = fencepost.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic=SHIPMENTS, count=2)
    work_until_done(fencepost, new_worker())
    assert refused.fired == 2
    assert len(fencepost.records(SHIPMENTS)) == 1
