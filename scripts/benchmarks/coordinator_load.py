"""How fast both coordinators take in their logs: many records for few keys, as they lie before the cleaner comes round.

The logs are written by clients once. Then the broker, stopped cleanly, is started on copies of them; it logs how long
the load of each partition took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from scripts.benchmarks.client import (
    Client,
    connect,
    create_topic,
    end_transaction_request,
    find_group_coordinator,
    init_producer_id_request,
    init_producers,
    require_success,
    wait_until_answered,
)
from scripts.benchmarks.figures import Broker, Figure, Round, Sample, Target
from scripts.benchmarks.prepared import copy, prepared
from scripts.benchmarks.recovery import NEVER_MS, SETTINGS

TOPIC = "measured"
OFFSETS_PER_COMMIT = 100
LOADED_EVENT = "coordinator_partition_loaded"
RECORDS_PER_TRANSACTION = 3  # Ongoing, PrepareCommit, CompleteCommit
LOAD_TIMEOUT_S = 120.0


def measure_transactions(round_: Round) -> Iterator[Sample]:
    yield from measure(round_, "transaction", write_transactions)


def measure_groups(round_: Round) -> Iterator[Sample]:
    yield from measure(round_, "group", write_offsets)


def measure(round_: Round, coordinator: str, write: Callable[[Round, Client], None]) -> Iterator[Sample]:
    def prepare(directory: Path) -> None:
        (directory / "data").mkdir()
        preparing = round_.subject.launch(directory / "data", SETTINGS)
        try:
            with connect(preparing) as client:
                write(round_, client)
            preparing.terminate()
        finally:
            preparing.kill()

    source = prepared(round_.cache, f"{coordinator}-coordinator", round_.sizes, prepare)
    round_.say("copying the logs")
    data_directory = copy(source / "data", round_.scratch / "data")
    round_.say(f"loading the {coordinator} coordinator")
    started_at_s = time.monotonic()
    broker = round_.subject.launch(data_directory, SETTINGS)
    try:
        with connect(broker) as client:
            started_cpu_s = broker.cpu_s()
            request = init_producer_id_request(transactional_id(0), NEVER_MS)
            if coordinator == "transaction":
                wait_until_answered(client, request)
            else:
                wait_until_answered(client, commit_request(group_id(0), 0, offsets_count=1))
        yield Sample("first answer of the coordinator", time.monotonic() - started_at_s, "s")
        events = _loads(round_, broker, coordinator)
        records_count = sum(int(str(event["records"])) for event in events)
        duration_s = sum(float(str(event["duration_ms"])) for event in events) / 1000
        yield Sample("records loaded", records_count, "records")
        loading_cpu_s = broker.cpu_s() - started_cpu_s
        yield Sample("load rate", records_count / duration_s, "records/s")
        # Holds on a machine that others use, too. What was loaded before the first connection is missing in the time.
        yield Sample("records per CPU second", records_count / max(loading_cpu_s, 0.01), "records/s")
        yield Sample("memory after it", broker.resident_bytes() / 2**20, "MiB")
    finally:
        broker.kill()


def _loads(round_: Round, broker: Broker, coordinator: str) -> list[dict[str, object]]:
    """The events of all loads, once all that was written has been loaded. Raises TimeoutError."""
    deadline_s = time.monotonic() + LOAD_TIMEOUT_S
    while time.monotonic() < deadline_s:
        events = [event for event in broker.events(LOADED_EVENT) if event["coordinator"] == coordinator]
        if sum(int(str(event["records"])) for event in events) >= round_.sizes["records"]:
            return events
        time.sleep(0.05)
    raise TimeoutError(f"the {coordinator} coordinator had not loaded {round_.sizes['records']:,} records in time")


def write_transactions(round_: Round, client: Client) -> None:
    """Transactions of version 1 without any data, as each writes just as much into the coordinator's log."""
    sizes = round_.sizes
    create_topic(client, TOPIC, 1)
    names = [transactional_id(number) for number in range(sizes["keys"])]
    producers = init_producers(client, names, NEVER_MS)
    transactions_count = -(-(sizes["records"] - len(names)) // (RECORDS_PER_TRANSACTION * len(names)))
    for number in range(transactions_count):
        round_.say(f"preparing: {number * len(names):,} of {transactions_count * len(names):,} transactions")
        opening = (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
            )
            for name, (producer_id, producer_epoch) in zip(names, producers, strict=True)
        )
        for reply in client.pipeline(opening):
            require_success(reply)
        ending = (end_transaction_request(*both) for both in zip(names, producers, strict=True))
        producers = [
            (reply.producer_id, reply.producer_epoch) for reply in map(require_success, client.pipeline(ending))
        ]
    # These wait until the last transactions are complete, which a stop would leave to the next start.
    for _ in client.pipeline(init_producer_id_request(name, NEVER_MS) for name in names):
        pass


def write_offsets(round_: Round, client: Client) -> None:
    """Groups of one partition each commit over and over; a commit writes as many records as it has partitions."""
    sizes = round_.sizes
    create_topic(client, TOPIC, OFFSETS_PER_COMMIT)
    groups_count = max(1, sizes["keys"] // OFFSETS_PER_COMMIT)
    commits_count = -(-sizes["records"] // OFFSETS_PER_COMMIT)
    find_group_coordinator(client, group_id(0))
    wait_until_answered(client, commit_request(group_id(0), 0, offsets_count=1))
    requests = (commit_request(group_id(number % groups_count), number) for number in range(commits_count))
    for number, reply in enumerate(client.pipeline(requests)):
        require_success(reply)
        if number % 100 == 0:
            round_.say(f"preparing: {number:,} of {commits_count:,} commits")


def commit_request(group: str, offset: int, *, offsets_count: int = OFFSETS_PER_COMMIT) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        for partition in range(offsets_count)
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)])


def transactional_id(number: int) -> str:
    return f"application-{number}"


def group_id(number: int) -> str:
    return f"group-{number}"


SIZES = {"records": 500_000, "keys": 10_000}
SMALL_SIZES = {"records": 1_000, "keys": 100}
TARGETS = (Target("load rate", 100_000, is_lower_bound=True),)
FIGURES = (
    Figure(
        name="transaction-coordinator-load",
        about="500,000 records of __transaction_state for 10,000 transactional ids",
        measure=measure_transactions,
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        targets=TARGETS,
    ),
    Figure(
        name="group-coordinator-load",
        about="500,000 records of __consumer_offsets for 10,000 committed offsets",
        measure=measure_groups,
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        targets=TARGETS,
    ),
)
