"""What a cluster of machines asks of its stores: commits of PostgreSQL that write, and requests of the object store.

    .venv/bin/python -m scripts.cluster_counts [PART…] [--quick]

Parts: operations, together, gigabytes, idle. Prints the tables of docs/performance/cluster.md. These are counts: the
load of the machine changes those of `together` and `gigabytes` alone, as a flush takes what came during the one before.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.broker.coordination.shard import partition_for_key
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from scripts.benchmarks.batches import BatchTemplate
from scripts.benchmarks.client import (
    Client,
    end_transaction_request,
    error_of,
    find_group_coordinator,
    find_transaction_coordinator,
    init_producers,
    produce_request,
    require_success,
    wait_until_answered,
)
from scripts.benchmarks.client_process import client
from scripts.measured_parts import read_arguments
from scripts.process_costs import GIGABYTE, leaders
from tests.support.conditions import until
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer, object_server
from tests.support.postgres import PostgresServer, postgres_server

NODES, TOPIC, PARTITIONS = 3, "orders", 30
STATE_TOPIC, OFFSETS_TOPIC, INTERNAL_PARTITIONS = "__transaction_state", "__consumer_offsets", 6
SETTINGS = {
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "fencepost.node.settling.ms": "0",
}
RARE_RENEWALS = {"fencepost.cluster.lease.ms": "60000", "fencepost.cluster.lease.renewal.ms": "20000"}
"""So that few renewals fall into what is counted; the least of several rounds has none."""
STILL_S, SEALED_S, LOOK_S = 0.3, 15.0, 0.02
ROUNDS = 3
ADDING, IMPLICIT = (11, 4), (12, 5)
"""Versions of Produce and EndTxn by which producers add partitions in a request of their own, or by what they write
(KIP-890, transaction version 2)."""


class Counts(NamedTuple):
    """commits: of transactions of PostgreSQL that write or lock rows. requests: of the object store, by method."""

    commits: int
    requests: Mapping[str, int]


class CountedCluster:
    """A cluster that nobody else asks, and its stores. machines: its brokers. objects: its object store."""

    def __init__(self, machines: Machines, database: PostgresServer, objects: ObjectServer, undo: ExitStack) -> None:
        self.machines = machines
        self.objects = objects
        self._session = undo.enter_context(psycopg.connect(database.uri, autocommit=True))
        self._undo = undo
        self._clients: dict[int, Client] = {}
        self._leaders: dict[str, Mapping[int, int]] = {}

    def leaders(self, topic: str) -> Mapping[int, int]:
        """Node ids by partition."""
        if topic not in self._leaders:
            self._leaders[topic] = until(lambda: self._all_leaders(topic))
        return self._leaders[topic]

    def _all_leaders(self, topic: str) -> Mapping[int, int]:
        found = leaders(self.machines.bootstrap, topic)
        return {} if -1 in found.values() else found

    def led_by(self, node_id: int, count: int) -> list[int]:
        """Partitions of the topic that one broker leads."""
        return [number for number, leader in self.leaders(TOPIC).items() if leader == node_id][:count]

    def at(self, node_id: int) -> Client:
        """A connection to a broker."""
        if node_id not in self._clients:
            host, port = self.machines[node_id].bootstrap.split(":")
            self._clients[node_id] = self._undo.enter_context(Client((host, int(port))))
        return self._clients[node_id]

    def committed(self) -> int:
        """How many transactions of PostgreSQL have had an id so far: those that write, or lock a row."""
        (found,) = self._session.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text").fetchone() or ("",)
        return int(found)

    def settle(self) -> None:
        """Wait until nothing is asked of either store."""
        _wait_until_still(lambda: (self.committed(), len(self.objects.requests)), STILL_S)

    def wait_until_sealed(self) -> None:
        """Wait until nothing is asked of the object store for long: a large segment is read before it is put."""
        _wait_until_still(lambda: len(self.objects.requests), SEALED_S)

    def count(self, action: Callable[[], object]) -> Counts:
        """Count what an action takes, with all that follows it."""
        self.settle()
        commits, requests = self.committed(), len(self.objects.requests)
        action()
        self.settle()
        return Counts(self.committed() - commits, Counter(method for method, _ in self.objects.requests[requests:]))

    def least(self, action: Callable[[], object]) -> Counts:
        """The least of several rounds: the others have renewals of leases in them."""
        return min((self.count(action) for _ in range(ROUNDS)), key=lambda one: one.commits)


def _wait_until_still(found: Callable[[], object], still_s: float) -> None:
    before, since_s = None, time.monotonic()
    while time.monotonic() - since_s < still_s:
        now = found()
        if now != before:
            before, since_s = now, time.monotonic()
        time.sleep(LOOK_S)


@contextmanager
def counted_cluster(settings: Mapping[str, str] = RARE_RENEWALS, count: int = NODES) -> Iterator[CountedCluster]:
    """Start a cluster on stores of its own, with a topic."""
    with ExitStack() as undo:
        directory = Path(undo.enter_context(tempfile.TemporaryDirectory()))
        database = undo.enter_context(postgres_server(is_durable=True))
        database.execute("ALTER SYSTEM SET autovacuum = off")  # its own transactions would be counted
        database.execute("SELECT pg_reload_conf()")
        objects = undo.enter_context(object_server(directory / "objects"))
        machines = undo.enter_context(
            Machines(database.cluster_url(), objects.make_bucket(), directory, count, settings={**SETTINGS, **settings})
        )
        _create_topic(machines.bootstrap, count)
        cluster = CountedCluster(machines, database, objects, undo)
        cluster.leaders(TOPIC)
        for node_id in machines.machines:  # a leader may still be opening its logs
            for number in cluster.led_by(node_id, PARTITIONS):
                wait_until_answered(cluster.at(node_id), produce_request(TOPIC, [(number, SMALL.batch())]))
        yield cluster


def _create_topic(bootstrap: str, count: int) -> None:
    """Neighbouring partitions have different leaders, which all brokers know."""
    admins = [AdminClient({"bootstrap.servers": address}) for address in bootstrap.split(",")]
    until(lambda: all(len(admin.list_topics(timeout=60).brokers) == count for admin in admins))
    wanted = {number: number % count + 1 for number in range(PARTITIONS)}
    topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=[[leader] for leader in wanted.values()])
    admins[0].create_topics([topic])[TOPIC].result()
    for address in bootstrap.split(","):
        until(lambda: leaders(address, TOPIC) == wanted)  # noqa: B023  # called at once


SMALL = BatchTemplate(record_bytes=100, records_count=1)
TRANSACTIONAL = BatchTemplate(record_bytes=100, records_count=1, is_transactional=True)


def produce(cluster: CountedCluster, node_id: int, partition_count: int, template: BatchTemplate = SMALL) -> None:
    """One request for partitions of one broker."""
    batches = [(number, template.batch()) for number in cluster.led_by(node_id, partition_count)]
    wait_until_answered(cluster.at(node_id), produce_request(TOPIC, batches))


def commit_offset(cluster: CountedCluster, group_id: str) -> None:
    """Commit the offset of one partition."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    at = cluster.at(group_coordinator(cluster, group_id))
    # A broker serves a group when it has read its partition, which may be after others name it.
    wait_until_answered(at, OffsetCommitRequest(group_id=group_id, topics=[topic]))


def group_coordinator(cluster: CountedCluster, group_id: str) -> int:
    """The broker that coordinates a group."""
    find_group_coordinator(cluster.at(1), group_id)
    return cluster.leaders(OFFSETS_TOPIC)[partition_for_key(group_id, INTERNAL_PARTITIONS)]


# Transactions


class Transactions:
    """A producer's transactions over some partitions, request by request.

    coordinator: the broker that coordinates them. versions: `ADDING` or `IMPLICIT`.
    """

    def __init__(
        self, cluster: CountedCluster, name: str, coordinator: int, partitions: Sequence[int], versions: tuple[int, int]
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id(cluster, name, coordinator)
        self._partitions = partitions
        self._produce_version, self._end_version = versions
        self._coordinator = cluster.at(coordinator)
        (self._producer,) = init_producers(self._coordinator, [self._id], 60_000)
        self._sequence = 0

    def one(self, group_id: str | None = None) -> None:
        """One transaction. group_id: whose offset is committed with it."""
        if self._end_version == ADDING[1]:
            wait_until_answered(self._coordinator, self._addition())
        self._write()
        if group_id is not None:
            self._commit_offset(group_id)
        self._took(self._coordinator.call(self._end(), version=self._end_version))

    def in_a_row(self, count: int) -> None:
        """Transactions, each of which begins as soon as the one before is decided: in the same packet."""
        wait_until_answered(self._coordinator, self._addition())
        for _ in range(count - 1):
            self._write()
            self._coordinator.send(self._end(), version=self._end_version)
            self._coordinator.send(self._addition())
            require_success(self._coordinator.receive())
            if error_of(self._coordinator.receive()) is not ErrorCode.NONE:
                wait_until_answered(self._coordinator, self._addition())
        self._write()
        self._took(self._coordinator.call(self._end(), version=self._end_version))

    def _addition(self) -> AddPartitionsToTxnRequest:
        producer_id, producer_epoch = self._producer
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(self._partitions))],
        )

    def _write(self) -> None:
        """One record to each partition, in a request to each leader, all at once."""
        by_leader: dict[int, list[tuple[int, bytes]]] = {}
        for number in self._partitions:
            batch = TRANSACTIONAL.batch(self._producer, self._sequence)
            by_leader.setdefault(self._cluster.leaders(TOPIC)[number], []).append((number, batch))
        self._sequence += 1
        version = self._produce_version
        requests = {node_id: produce_request(TOPIC, batches, self._id) for node_id, batches in by_leader.items()}
        for node_id, request in requests.items():
            self._cluster.at(node_id).send(request, version=version)
        for node_id, request in requests.items():
            if error_of(self._cluster.at(node_id).receive()) is not ErrorCode.NONE:
                # A leader may know the coordinator, which it asks, later than its client does.
                wait_until_answered(self._cluster.at(node_id), request, version=version)

    def _commit_offset(self, group_id: str) -> None:
        producer_id, producer_epoch = self._producer
        wait_until_answered(
            self._coordinator,
            AddOffsetsToTxnRequest(
                transactional_id=self._id, producer_id=producer_id, producer_epoch=producer_epoch, group_id=group_id
            ),
        )
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        wait_until_answered(
            self._cluster.at(group_coordinator(self._cluster, group_id)),
            TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
            ),
        )

    def _end(self) -> Any:
        return end_transaction_request(self._id, self._producer)

    def _took(self, reply: Any) -> None:
        require_success(reply)
        if self._end_version == IMPLICIT[1]:
            self._producer, self._sequence = (reply.producer_id, reply.producer_epoch), 0


def transactional_id(cluster: CountedCluster, name: str, coordinator: int) -> str:
    """An id whose transactions a broker coordinates."""
    find_transaction_coordinator(cluster.at(1), name)  # makes its topic
    of = cluster.leaders(STATE_TOPIC)
    ids = (f"{name}-{number}" for number in range(10_000))
    return next(one for one in ids if of[partition_for_key(one, INTERNAL_PARTITIONS)] == coordinator)


def spread(cluster: CountedCluster, brokers: int, count: int = 3) -> list[int]:
    """Partitions whose leaders are the first `brokers` nodes, in turn."""
    return [cluster.led_by(turn % brokers + 1, count)[turn // brokers] for turn in range(count)]


# Parts


def operations(cluster: CountedCluster, sizes: Sizes) -> None:
    """Each operation by itself."""
    print("| | commits of PostgreSQL | requests of the object store |\n|---|---|---|")

    def shown(name: str, found: Counts, times: int = 1) -> None:
        requests = ", ".join(f"{count} {method}" for method, count in found.requests.items())
        print(f"| {name} | {found.commits / times:g} | {requests or 0} |", flush=True)

    shown("a record", cluster.least(lambda: produce(cluster, 1, 1)))
    shown("a request for 10 partitions of one broker", cluster.least(lambda: produce(cluster, 1, 10)))
    large = BatchTemplate(record_bytes=10_000, records_count=100)
    shown("a batch of 1 MB", cluster.least(lambda: produce(cluster, 1, 1, large)))
    shown("an offset of a group", cluster.least(lambda: commit_offset(cluster, "readers")))
    for brokers in range(1, NODES + 1):
        partitions = spread(cluster, brokers)
        adding = Transactions(cluster, f"adding-{brokers}", 1, partitions, ADDING)
        name = f"three partitions of {brokers} brokers"
        shown(f"a transaction over {name}", cluster.least(adding.one))
        shown(f"the same, one of {sizes.in_a_row} in a row", *_in_a_row(cluster, adding, sizes.in_a_row))
        shown("the same with an offset of a group", cluster.least(lambda: adding.one("readers")))  # noqa: B023  # called at once
        implicit = Transactions(cluster, f"implicit-{brokers}", 1, partitions, IMPLICIT)
        shown("a transaction of version 2", cluster.least(implicit.one))


def _in_a_row(cluster: CountedCluster, transactions: Transactions, count: int) -> tuple[Counts, int]:
    return cluster.least(lambda: transactions.in_a_row(count)), count


def together(cluster: CountedCluster, sizes: Sizes) -> None:
    """Transactions over three partitions of three brokers by several librdkafka producers at a time."""
    print("| producers | transactions | commits of PostgreSQL for each |\n|---|---|---|")
    for producers in (1, 10, 50):
        with client(
            "transactions",
            bootstrap=cluster.machines.bootstrap,
            topic=TOPIC,
            partitions=PARTITIONS,
            per_transaction=3,
            producers=producers,
            duration_s=sizes.seconds,
        ) as process:
            done: list[int] = []

            def run() -> None:
                process.go()  # called at once
                done.append(len(process.result()["commits_ms"]))  # noqa: B023

            found = cluster.count(run)
        print(f"| {producers} | {done[0]} | {found.commits / done[0]:.1f} |", flush=True)


def gigabytes(cluster: CountedCluster, sizes: Sizes) -> None:
    """One partition is written, its segments are sealed: what a gigabyte takes."""
    print("| batches | written | commits of PostgreSQL for a GB | requests of the object store |\n|---|---|---|---|")
    for turn, (name, record_bytes, count) in enumerate((("16 KB", 1_000, 16), ("1 MB", 10_000, 100))):
        template = BatchTemplate(record_bytes=record_bytes, records_count=count)
        number = cluster.led_by(1, turn + 1)[turn]
        batch = template.batch()
        batches = sizes.written_bytes // len(batch)

        def write() -> None:
            request = produce_request(TOPIC, [(number, batch)])  # noqa: B023  # called at once
            for reply in cluster.at(1).pipeline((request for _ in range(batches)), in_flight_count=5):  # noqa: B023
                require_success(reply)
            cluster.wait_until_sealed()

        found = cluster.count(write)
        of_gb = GIGABYTE / (batches * len(batch))
        requests = ", ".join(f"{each * of_gb:.0f} {method}" for method, each in found.requests.items())
        print(f"| {name} | {sizes.written_bytes / 1e6:.0f} MB | {found.commits * of_gb:.0f} | {requests} |", flush=True)


def idle(cluster: CountedCluster, sizes: Sizes) -> None:
    """Nothing is asked of a cluster with the usual leases."""
    commits, requests = cluster.committed(), len(cluster.objects.requests)
    time.sleep(sizes.idle_s)
    of_hour = 3_600 / sizes.idle_s / NODES
    print("| each idle broker, an hour | |\n|---|---|")
    print(f"| commits of PostgreSQL | {(cluster.committed() - commits) * of_hour:.0f} |")
    print(f"| requests of the object store | {(len(cluster.objects.requests) - requests) * of_hour:.0f} |")


class Sizes(NamedTuple):
    """How much is done: transactions one behind the other, seconds of transactions, bytes, seconds of idleness."""

    in_a_row: int = 20
    seconds: float = 6.0
    written_bytes: int = 300_000_000
    idle_s: float = 150.0


QUICK = Sizes(3, 1.0, 80_000_000, 5.0)
PARTS: Mapping[str, Callable[[CountedCluster, Sizes], None]] = {
    "operations": operations,
    "together": together,
    "gigabytes": gigabytes,
    "idle": idle,
}


def main() -> None:
    """Count, and print."""
    asked = read_arguments(__doc__, PARTS)
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "tests")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "not checked")
    for name in asked.each():
        with counted_cluster({} if name == "idle" else RARE_RENEWALS) as cluster:
            PARTS[name](cluster, QUICK if asked.is_quick else Sizes())


if __name__ == "__main__":
    main()
