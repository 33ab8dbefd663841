"""What a cluster asks of PostgreSQL and of the object store: the counts that docs/cluster.md names."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from scripts.benchmarks.batches import BatchTemplate
from scripts.cluster_counts import (
    ADDING,
    IMPLICIT,
    NODES,
    CountedCluster,
    Transactions,
    commit_offset,
    counted_cluster,
    group_coordinator,
    produce,
    spread,
)

COORDINATOR = 1
IN_A_ROW = 10


@pytest.fixture(scope="module")
def counted() -> Iterator[CountedCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "tests")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
        with counted_cluster() as cluster:
            yield cluster


def test_one_request_is_one_commit_for_any_number_of_partitions(counted: CountedCluster) -> None:
    assert counted.least(lambda: produce(counted, 1, 1)) == (1, {})
    assert counted.least(lambda: produce(counted, 1, 10)) == (1, {})


def test_a_large_batch_is_one_commit_and_one_object(counted: CountedCluster) -> None:
    large = BatchTemplate(record_bytes=10_000, records_count=100)
    assert counted.least(lambda: produce(counted, 1, 1, large)) == (1, {"PUT": 1})


def test_offsets_of_a_group_are_one_commit(counted: CountedCluster) -> None:
    assert counted.least(lambda: commit_offset(counted, "readers")) == (1, {})


@pytest.mark.parametrize("brokers", range(1, NODES + 1))
def test_a_transaction_takes_two_commits_for_each_broker_and_three(counted: CountedCluster, brokers: int) -> None:
    transactions = Transactions(counted, f"alone-{brokers}", COORDINATOR, spread(counted, brokers), ADDING)
    assert counted.least(transactions.one) == (2 * brokers + 3, {})


@pytest.mark.parametrize("brokers", range(1, NODES + 1))
def test_the_end_of_a_transaction_goes_with_the_beginning_of_the_next(counted: CountedCluster, brokers: int) -> None:
    transactions = Transactions(counted, f"in-a-row-{brokers}", COORDINATOR, spread(counted, brokers), ADDING)
    found = counted.least(lambda: transactions.in_a_row(IN_A_ROW))
    # An addition that comes more than 20 ms after the end, on a busy machine, is a commit of its own.
    assert IN_A_ROW * (2 * brokers + 2) + 1 <= found.commits <= IN_A_ROW * (2 * brokers + 3)
    assert found.requests == {}


@pytest.mark.parametrize("brokers", range(1, NODES + 1))
def test_each_broker_adds_what_it_leads_to_a_transaction_of_version_2(counted: CountedCluster, brokers: int) -> None:
    transactions = Transactions(counted, f"implicit-{brokers}", COORDINATOR, spread(counted, brokers), IMPLICIT)
    found = counted.least(transactions.one)
    # The additions of several brokers that come during a commit go with the next.
    assert 2 * brokers + 3 <= found.commits <= 3 * brokers + 2
    assert found.requests == {}


def test_offsets_in_a_transaction_are_two_commits_and_a_marker_where_their_coordinator_is(
    counted: CountedCluster,
) -> None:
    for brokers in (1, NODES):
        transactions = Transactions(counted, f"offsets-{brokers}", COORDINATOR, spread(counted, brokers), ADDING)
        has_marker = group_coordinator(counted, "readers") > brokers
        found = counted.least(lambda: transactions.one("readers"))  # noqa: B023  # called at once
        assert found == (2 * brokers + 3 + 2 + has_marker, {})


@pytest.mark.usefixtures("aws_keys")
def test_an_idle_broker_commits_once_a_second_and_asks_the_object_store_for_nothing() -> None:
    with counted_cluster({}) as cluster:
        time.sleep(3.0)  # all leases are renewed by then, and nothing is left to do
        commits, requests, began_s = cluster.committed(), len(cluster.objects.requests), time.monotonic()
        time.sleep(10.0)
        taken_s = time.monotonic() - began_s
        assert cluster.committed() - commits <= NODES * (taken_s + 1)
        assert len(cluster.objects.requests) == requests


@pytest.fixture
def aws_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
