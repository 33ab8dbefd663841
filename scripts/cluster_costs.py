"""What a cluster of machines costs and gives: three brokers on PostgreSQL and an S3 server, beside one on local files.

    .venv/bin/python -m scripts.cluster_costs [PART…] [--quick]

Parts: floor, produce, transactions, large, large-on-seaweedfs, move, take-over, idle, cost. Prints the tables of
docs/performance/cluster.md. All processes share this machine, so the ratios of one run count, and not its times.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from click.testing import CliRunner

from fencepost.broker.cluster.objects.location import ObjectLocation, read_location
from fencepost.broker.cluster.objects.s3 import S3Objects
from fencepost.broker.cluster.postgres.connections import connect, parse_address
from fencepost.broker.cluster.postgres.schema import prepare
from fencepost.broker.cluster.postgres.tail import PostgresTail
from fencepost.broker.cluster.tail.tail_store import FlushId, PartitionKey, TailRow
from fencepost.cli.commands import fencepost
from fencepost.protocol.errors import ErrorCode
from fencepost.soak.trial_services import trial_objects, trial_postgres
from scripts.benchmarks.batches import BatchTemplate
from scripts.benchmarks.client import Client, error_of, produce_request
from scripts.benchmarks.client_process import client
from scripts.cluster_lost import lost
from scripts.measured_parts import read_arguments
from scripts.process_costs import GIGABYTE, Probe, create_topic, leaders, longest_gap, split
from scripts.seaweedfs import SeaweedFS
from scripts.tls_costs import Case, cpu_s, produce
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until
from tests.support.machines import Machine, Machines

SETTINGS = {"transaction.state.log.num.partitions": "6", "offsets.topic.num.partitions": "6"}
NODES = 3
PARTITIONS = 30
MEGABYTE = 1_000_000
LARGE_BATCH_BYTES = 1_000_000
LARGE_IN_FLIGHT = 16
FIRST_OBJECTS_PORT = 19_000
SETTLED_S = 3.0
"""After a topic was made, or a move: what others do about it is done by then."""


class Sizes(NamedTuple):
    """How much is done: single requests, bytes, seconds of transactions and of idleness, moves, rounds."""

    requests: int = 1_000
    large_bytes: int = 400 * MEGABYTE
    cost_bytes: int = 100 * MEGABYTE
    seconds: float = 6.0
    idle_s: float = 20.0
    moves: int = 10
    taken_over: Sequence[int] = (1_000, 10_000)
    rounds: int = 3


QUICK = Sizes(50, 20 * MEGABYTE, 5 * MEGABYTE, 0.5, 3.0, 2, (50,), 1)


class Stores(NamedTuple):
    """url: of the PostgreSQL, whose databases have several clusters. objects: the bucket. log: of the S3 server.
    database_log: of PostgreSQL."""

    url: str
    objects: ObjectLocation
    log: Path
    database_log: Path

    def cluster_url(self) -> str:
        """Of a cluster that does not exist yet."""
        return f"{self.url}&search_path=cluster_{uuid.uuid4().hex[:12]}"

    def puts(self) -> int:
        """How many objects were put so far."""
        return self.log.read_text(errors="replace").count('"PUT ')

    @contextmanager
    def statements_logged(self) -> Iterator[None]:
        """PostgreSQL logs each statement meanwhile, for `statements`."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for setting, value in (("log_statement", "all"), ("log_line_prefix", "%a ")):
                connection.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
            connection.execute("SELECT pg_reload_conf()")
            yield
            for setting in ("log_statement", "log_line_prefix"):
                connection.execute(f"ALTER SYSTEM RESET {setting}")
            connection.execute("SELECT pg_reload_conf()")

    def statements(self) -> int:
        """How many statements of brokers were logged so far. What the server counts has its own vacuuming in it, which
        goes on for a while after the larger parts."""
        return len(STATEMENT.findall(self.database_log.read_text(errors="replace")))


STATEMENT = re.compile(r"^fencepost \S+ \w+ LOG:  (?:statement|execute)", re.MULTILINE)


@contextmanager
def stores() -> Iterator[Stores]:
    """A PostgreSQL that syncs its commits, and an S3 server, both as processes of their own."""
    with tempfile.TemporaryDirectory(prefix="cluster-costs-") as directory:
        path = Path(directory)
        path.chmod(0o755)  # PostgreSQL may run as another user
        with trial_postgres(path) as postgres, trial_objects(path, FIRST_OBJECTS_PORT) as bucket:
            location = read_location(bucket.url)
            os.environ["AWS_ACCESS_KEY_ID"] = location.access_key_id or ""
            os.environ["AWS_SECRET_ACCESS_KEY"] = location.secret_access_key or ""
            yield Stores(postgres.url, location, bucket.log, postgres.log)


@contextmanager
def machines(kept: Stores, count: int = NODES, settings: Mapping[str, str] = {}) -> Iterator[Machines]:
    """A new cluster of `count` brokers."""
    with tempfile.TemporaryDirectory() as directory:
        where = ObjectLocation(kept.objects.bucket, uuid.uuid4().hex, endpoint=kept.objects.endpoint)
        with Machines(kept.cluster_url(), where, Path(directory), count, settings=SETTINGS | dict(settings)) as cluster:
            yield cluster


@contextmanager
def alone(settings: Mapping[str, str] = {}) -> Iterator[BrokerProcess]:
    """One broker that syncs local files."""
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "data", settings=SETTINGS | dict(settings)) as broker,
    ):
        yield broker


@contextmanager
def each_way(kept: Stores) -> Iterator[Mapping[str, str]]:
    """Bootstrap addresses of one broker on local files and of a cluster, both running."""
    with alone() as local, machines(kept) as cluster:
        yield {"local": local.bootstrap, "cluster": cluster.bootstrap}


def led_by(bootstrap: str, topic: str) -> tuple[int, tuple[str, int]]:
    """A partition of a topic, and the address of its leader: the first broker where it leads one."""
    nodes = bootstrap.split(",")
    found = until(lambda: {leader: number for number, leader in leaders(bootstrap, topic).items() if leader >= 0})
    node_id = min(found)
    return found[node_id], split(nodes[node_id - 1] if len(nodes) > 1 else nodes[0])


def ratio_table(name: str, unit: str, found: Mapping[str, Sequence[float]], aim: str, *, is_rate: bool = False) -> None:
    """Print medians, and how many times as much the cluster has as the broker alone."""
    local, cluster = (statistics.median(found[way]) for way in ("local", "cluster"))
    digits = 0 if is_rate else 2
    print(f"| {name} | {local:,.{digits}f} {unit} | {cluster:,.{digits}f} {unit} | {cluster / local:.2f} | {aim} |")


HEADER = "| | local files | cluster | ratio | aim |\n|---|---|---|---|---|"


def tenth(values: Sequence[float]) -> float:
    """What one of ten is below: on a busy machine, about what a quiet one takes."""
    return sorted(values)[len(values) // 10]


# The floor: what a flush takes without a broker


def floor(kept: Stores, sizes: Sizes) -> None:
    """One sync of a file, one flush of three rows by asyncpg alone, and objects of 4 MB put side by side."""
    syncs_ms = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(sizes.requests // 2):
            began_s = time.perf_counter()
            file.write(b"x" * 300)
            file.flush()
            os.fdatasync(file.fileno())
            syncs_ms.append((time.perf_counter() - began_s) * 1e3)
    flushes_ms, put_mb_per_s = asyncio.run(_floor(kept, sizes))
    print("| | |\n|---|---|")
    for name, found in {"a sync of a local file after 300 bytes": syncs_ms, **flushes_ms}.items():
        print(f"| {name}, p10 and p50 | {tenth(found):.2f} ms, {statistics.median(found):.2f} ms |")
    for at_once, rate in put_mb_per_s.items():
        print(f"| objects of 4 MB, {at_once} at once | {rate:,.0f} MB/s |")


async def _floor(kept: Stores, sizes: Sizes) -> tuple[dict[str, list[float]], dict[int, float]]:
    address = parse_address(kept.cluster_url())
    admin = await connect(address, application_name="costs")
    await prepare(admin, address)
    await admin.execute(
        "INSERT INTO fences VALUES (1, 1);"
        "INSERT INTO nodes VALUES (1, gen_random_uuid(), 'alive', '{}', NULL, clock_timestamp(), clock_timestamp());"
        "INSERT INTO partitions (topic_id, partition, leader, leader_epoch) "
        "SELECT '00000000-0000-0000-0000-000000000000', number, 1, 0 FROM generate_series(0, 2) AS number"
    )
    found: dict[str, list[float]] = {}
    tail = PostgresTail(address, lambda: "costs")
    contents = {"a flush of 3 rows of 300 bytes": 300, "a flush of 3 rows of 16 KB": 16_000}
    offset = 0
    for name, size_bytes in contents.items():
        flushes_ms = found[name] = []
        for _ in range(sizes.requests // 2):
            rows = [
                TailRow(
                    PartitionKey(bytes(16), number), 0, offset, size_bytes, offset, offset + 1, 0, b"x" * size_bytes
                )
                for number in range(3)
            ]
            began_s = time.perf_counter()
            assert await tail.commit(FlushId(1, 1, offset), rows)
            flushes_ms.append((time.perf_counter() - began_s) * 1e3)
            offset += 1
    bare = found["the guard alone: SELECT ... FOR SHARE, which writes nothing"] = []
    for _ in range(sizes.requests // 2):
        began_s = time.perf_counter()
        await admin.fetchval("SELECT 1 FROM fences WHERE node_id = 1 AND fence = 1 FOR SHARE")
        bare.append((time.perf_counter() - began_s) * 1e3)
    await tail.close()
    await admin.close()
    return found, await put_rates(kept.objects, sizes)


async def put_rates(where: ObjectLocation, sizes: Sizes) -> dict[int, float]:
    """MB/s of objects of 4 MB, by the number of puts at once."""
    objects = S3Objects(where)
    content = os.urandom(4 * 1024 * 1024)
    rates = {}
    for at_once in (1, 4):
        puts = max(at_once, sizes.large_bytes // len(content))
        began_s = time.perf_counter()
        for _ in range(puts // at_once):
            await asyncio.gather(*(objects.put(f"floor/{uuid.uuid4()}", content) for _ in range(at_once)))
        rates[at_once] = puts // at_once * at_once * len(content) / MEGABYTE / (time.perf_counter() - began_s)
    return rates


# Acknowledgements


def acknowledgements(kept: Stores, sizes: Sizes) -> None:
    """A record of 100 bytes at a time, over a bare connection to the partition's leader."""
    batch = BatchTemplate(record_bytes=100, records_count=1).batch()
    fastest: dict[str, list[float]] = {"local": [], "cluster": []}
    found: dict[str, list[float]] = {"local": [], "cluster": []}
    slowest: dict[str, list[float]] = {"local": [], "cluster": []}
    with each_way(kept) as ways, ExitStack() as open_clients:
        clients = {}
        for way, bootstrap in ways.items():
            create_topic(bootstrap, "orders", PARTITIONS)
            partition, address = led_by(bootstrap, "orders")
            clients[way] = open_clients.enter_context(Client(address)), produce_request("orders", [(partition, batch)])
        time.sleep(SETTLED_S)
        for _ in range(sizes.rounds):
            for way, (connection, request) in clients.items():
                times_ms = sorted(_answered_ms(connection, request) for _ in range(sizes.requests))
                fastest[way].append(tenth(times_ms))
                found[way].append(statistics.median(times_ms))
                slowest[way].append(times_ms[len(times_ms) * 99 // 100])
    print(HEADER)
    ratio_table("acknowledged, p10", "ms", fastest, "")
    ratio_table("acknowledged, p50", "ms", found, "3.0 at most")
    ratio_table("acknowledged, p99", "ms", slowest, "")


def _answered_ms(connection: Client, request: Any) -> float:
    began_s = time.perf_counter()
    reply = connection.call(request)
    taken_ms = (time.perf_counter() - began_s) * 1e3
    assert error_of(reply) is ErrorCode.NONE, error_of(reply)
    return taken_ms


# Transactions


def transactions(kept: Stores, sizes: Sizes) -> None:
    """Transactions of a record in each of three partitions, one after another, by 1 and by 50 librdkafka producers."""
    fastest_ms: dict[str, list[float]] = {"local": [], "cluster": []}
    taken_ms: dict[str, list[float]] = {"local": [], "cluster": []}
    per_s: dict[str, list[float]] = {"local": [], "cluster": []}
    with each_way(kept) as ways:
        for bootstrap in ways.values():
            create_topic(bootstrap, "orders", PARTITIONS)
        for _ in range(sizes.rounds):
            for producers in (1, 50):
                for way, bootstrap in ways.items():
                    result = _transacted(bootstrap, producers, sizes.seconds)
                    if producers == 1:
                        fastest_ms[way].append(tenth(result["commits_ms"]))
                        taken_ms[way].append(statistics.median(result["commits_ms"]))
                    else:
                        per_s[way].append(len(result["commits_ms"]) / result["duration_s"])
    print(HEADER)
    ratio_table("a transaction of 3 partitions, p10", "ms", fastest_ms, "")
    ratio_table("a transaction of 3 partitions, p50", "ms", taken_ms, "3.0 at most")
    ratio_table("transactions of 50 producers", "/s", per_s, "0.6 at least", is_rate=True)


def _transacted(bootstrap: str, producers: int, seconds: float) -> dict[str, Any]:
    with client(
        "transactions",
        bootstrap=bootstrap,
        topic="orders",
        partitions=PARTITIONS,
        per_transaction=3,
        producers=producers,
        duration_s=seconds,
    ) as process:
        process.go()
        return process.result()


# Large batches


def large(kept: Stores, sizes: Sizes) -> None:
    """Batches of 1 MB to partitions of one broker, 16 requests in flight, and processor time of the broker."""
    template = BatchTemplate(record_bytes=10_000, records_count=LARGE_BATCH_BYTES // 10_000)
    batch = template.batch()
    per_s: dict[str, list[float]] = {"local": [], "cluster": []}
    processor: dict[str, list[float]] = {"local": [], "cluster": []}
    for _ in range(sizes.rounds):
        with alone() as local, machines(kept) as cluster:
            for way, bootstrap in (("local", local.bootstrap), ("cluster", cluster.bootstrap)):
                create_topic(bootstrap, "orders", PARTITIONS)
                time.sleep(SETTLED_S)
                partition, address = led_by(bootstrap, "orders")
                process_id = _listening(address, [local, *cluster.machines.values()])
                request = produce_request("orders", [(partition, batch)])
                count = sizes.large_bytes // len(batch)
                before_s, began_s = cpu_s(process_id), time.perf_counter()
                with Client(address) as connection:
                    for reply in connection.pipeline((request for _ in range(count)), in_flight_count=LARGE_IN_FLIGHT):
                        assert error_of(reply) is ErrorCode.NONE, error_of(reply)
                taken_s = time.perf_counter() - began_s
                per_s[way].append(count * len(batch) / MEGABYTE / taken_s)
                processor[way].append((cpu_s(process_id) - before_s) * GIGABYTE / (count * len(batch)))
                print(f"{way}: {per_s[way][-1]:.0f} MB/s, {processor[way][-1]:.2f} s/GB", file=sys.stderr)
    print(HEADER)
    ratio_table("batches of 1 MB to one broker", "MB/s", per_s, "0.5 at least", is_rate=True)
    ratio_table("processor time of that broker", "s/GB", processor, "")


def large_on_seaweedfs(kept: Stores, sizes: Sizes) -> None:
    """The same over SeaweedFS, a server in real use, after what it takes by itself."""
    with tempfile.TemporaryDirectory() as directory, SeaweedFS(Path(directory)) as server:
        server.ask("PUT", "costs")
        where = ObjectLocation("costs", "", endpoint=server.endpoint, access_key_id="any", secret_access_key="any")
        for at_once, rate in asyncio.run(put_rates(where, sizes)).items():
            print(f"objects of 4 MB, {at_once} at once: {rate:,.0f} MB/s\n")
        large(kept._replace(objects=where), sizes)


def _listening(address: tuple[str, int], brokers: Sequence[BrokerProcess]) -> int:
    """The process that listens there."""
    return next(broker.process_id for broker in brokers if broker.port == address[1])


# Moves and take-overs


def moves(kept: Stores, sizes: Sizes) -> None:
    """A partition that a producer writes to without a pause moves from broker to broker, as an operator asks."""
    of_moves, of_before = [], []
    with machines(kept) as cluster:
        create_topic(cluster.bootstrap, "orders", PARTITIONS)
        time.sleep(SETTLED_S)
        probe = Probe(cluster.bootstrap, "orders", 0)
        try:
            until(lambda: len(probe.answered) > 100)
            for _ in range(sizes.moves):
                target = leaders(cluster.bootstrap, "orders")[0] % NODES + 1
                time.sleep(SETTLED_S)
                began_s = time.monotonic()
                moved = CliRunner().invoke(
                    fencepost,
                    ["cluster", "move", "orders", "0", "--to", str(target), "--wait", "--bootstrap", cluster.bootstrap],
                )
                assert moved.exit_code == 0, moved.output
                time.sleep(SETTLED_S)
                of_before.append(longest_gap(probe.answered, began_s - SETTLED_S, began_s) * 1e3)
                of_moves.append(longest_gap(probe.answered, began_s) * 1e3)
        finally:
            probe.stop()
    print(f"| pauses of a writer | median | longest of {sizes.moves} | aim |\n|---|---|---|---|")
    print(f"| its partition moves | {statistics.median(of_moves):.0f} ms | {max(of_moves):.0f} ms | 300 ms |")
    print(f"| in the 3 s before | {statistics.median(of_before):.0f} ms | {max(of_before):.0f} ms | |")


def take_over(kept: Stores, sizes: Sizes) -> None:
    """kill -9 of one of two brokers that lead equally many partitions, each with a record."""
    print("| partitions | taken over after | the last one is led after | all have acknowledged a record after | load |")
    print("|---|---|---|---|---|", flush=True)
    for count in sizes.taken_over:
        with machines(kept, 2, {"fencepost.max.partitions": "100000"}) as cluster:
            print(lost(cluster, count), flush=True)


# What it takes when nothing happens, and for a byte


def idle(kept: Stores, sizes: Sizes) -> None:
    """Statements and objects that a cluster without clients makes."""
    with kept.statements_logged(), machines(kept) as cluster:
        create_topic(cluster.bootstrap, "orders", PARTITIONS)
        time.sleep(2 * SETTLED_S)
        processes = [machine.process_id for machine in cluster.machines.values()]
        puts, before, before_s = kept.puts(), kept.statements(), sum(map(cpu_s, processes))
        time.sleep(sizes.idle_s)
        statements = (kept.statements() - before) / sizes.idle_s / NODES
        puts, busy = kept.puts() - puts, (sum(map(cpu_s, processes)) - before_s) / sizes.idle_s / NODES
    print("| each idle broker | | aim |\n|---|---|---|")
    print(f"| statements of PostgreSQL | {statements:.1f}/s | 3/s at most |")
    print(f"| objects put in {sizes.idle_s:.0f} s | {puts} | 0 |")
    print(f"| processor time | {busy * 100:.1f} % | |")


def cost(kept: Stores, sizes: Sizes) -> None:
    """Processor time of all brokers for a gigabyte in batches of 16 KB by librdkafka, by the number of brokers."""
    found: dict[str, list[float]] = {"one on local files": [], "1": [], "2": [], "3": []}
    case = Case("16 KB batches", 16_000, sizes.cost_bytes)
    for number in range(sizes.rounds):
        for name, of_count in found.items():
            with ExitStack() as running:
                if name.isdigit():
                    cluster = running.enter_context(machines(kept, int(name)))
                    brokers: list[BrokerProcess | Machine] = list(cluster.machines.values())
                    bootstrap = cluster.bootstrap
                else:
                    brokers = [running.enter_context(alone())]
                    bootstrap = brokers[0].bootstrap
                for topic in ("warm", "measured"):
                    create_topic(bootstrap, topic, PARTITIONS)
                to = {"bootstrap.servers": bootstrap}
                produce(to, "warm", case._replace(total_bytes=case.total_bytes // 10))
                before_s = sum(cpu_s(broker.process_id) for broker in brokers)
                produce(to, "measured", case)
                taken_s = sum(cpu_s(broker.process_id) for broker in brokers) - before_s
                of_count.append(taken_s * GIGABYTE / case.total_bytes)
            print(f"round {number + 1}, {name}: {of_count[-1]:.2f} s/GB", file=sys.stderr)
    print("| brokers | produce, s/GB of all brokers |\n|---|---|")
    for name, of_count in found.items():
        print(f"| {name} | {statistics.median(of_count):.2f} |")


PARTS: Mapping[str, Callable[[Stores, Sizes], None]] = {
    "floor": floor,
    "produce": acknowledgements,
    "transactions": transactions,
    "large": large,
    "large-on-seaweedfs": large_on_seaweedfs,
    "move": moves,
    "take-over": take_over,
    "idle": idle,
    "cost": cost,
}


def main() -> None:
    asked = read_arguments(__doc__, PARTS)
    sizes = QUICK if asked.is_quick else Sizes()
    with stores() as kept:
        for name in asked.each():
            PARTS[name](kept, sizes)


if __name__ == "__main__":
    main()
