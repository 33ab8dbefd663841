"""What a two-phase commit costs beside an outbox, and beside the database alone: in turn, on one machine, in one run.

    .venv/bin/python -m scripts.two_phase_costs [--seconds 10]
    .venv/bin/python -m scripts.two_phase_costs --outage

The second shows what the outage of one service costs the others on its topic: as many records as they write in an hour
at 1,000 a second, behind one open transaction.

Each transaction inserts one row of 100 bytes and sends one record. The outbox has a relay, which polls each
millisecond, sends, and deletes the acknowledged rows. Prints the table of docs/two-phase-appendix.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiokafka
import confluent_kafka
import psycopg

from fencepost.testing.process import ProcessBroker
from fencepost.two_phase import (
    AsyncCoordinator,
    Coordinator,
    PostgresLog,
    SqliteLog,
    confluent_producer,
    prepare,
    start_session,
    start_session_async,
    transaction,
    transaction_async,
)
from tests.support.postgres import PostgresServer, postgres_server

TOPIC: Final = "orders"
PAYLOAD: Final = "x" * 100
SETTINGS: Final = {
    "transaction.two.phase.commit.enable": "true",
    "fencepost.two.phase.transactional.ids": "*",
}
PARTITIONS: Final = 8
HOUR_RECORDS: Final = 3_600_000
RELAY_BATCH: Final = 500
ROUNDS: Final = 3


class Result(NamedTuple):
    """Of one way. per_s: transactions. taken_ms: median of one. visible_ms: median from its begin to the record in a
    reader's hands. log_bytes: of the database's log, for each transaction."""

    per_s: float
    taken_ms: float
    visible_ms: float | None
    log_bytes: float


class Database:
    """PostgreSQL or SQLite, with one set of tables."""

    def __init__(self, server: PostgresServer | None, directory: Path) -> None:
        self.server = server
        self.path = directory / "orders.sqlite"
        self.log: Any = SqliteLog() if server is None else PostgresLog()
        self.mark = "?" if server is None else "%s"
        connection = self.connect()
        self.log.create(connection)
        for table in ("orders", "outbox"):
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (id text PRIMARY KEY, payload text)")
        connection.commit()
        self._kept = connection  # the last one to close would remove SQLite's log

    def connect(self) -> Any:
        if self.server is not None:
            return psycopg.connect(self.server.uri)
        connection = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    def log_position(self) -> int:
        """Bytes that the database's log has got so far."""
        if self.server is None:
            return os.stat(f"{self.path}-wal").st_size
        with psycopg.connect(self.server.uri) as connection:
            (position,) = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone() or (0,)
        return int(position)


class Run:
    """One way for some seconds: notes each transaction's time, and when each began."""

    def __init__(self, seconds: float) -> None:
        self.end_s = time.monotonic() + seconds
        self.began_s = time.monotonic()
        self.taken_s: list[float] = []
        self.begins: dict[str, float] = {}

    def goes_on(self) -> bool:
        return time.monotonic() < self.end_s

    @contextmanager
    def measured(self) -> Iterator[str]:
        key = uuid.uuid4().hex
        began_s = self.begins[key] = time.monotonic()
        yield key
        self.taken_s.append(time.monotonic() - began_s)


class Reader(threading.Thread):
    """Reads committed records, and notes when each was there."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "latest",
             "isolation.level": "read_committed", "fetch.wait.max.ms": 5}
        )  # fmt: skip
        self._is_over = threading.Event()
        self.seen_s: dict[str, float] = {}
        partitions = range(8)
        ends = [
            self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, one))[1] for one in partitions
        ]
        self._consumer.assign(
            [confluent_kafka.TopicPartition(TOPIC, *place) for place in zip(partitions, ends, strict=True)]
        )

    def run(self) -> None:
        while not self._is_over.is_set():
            for message in self._consumer.consume(1_000, 0.01):
                if message.error() is not None:
                    raise confluent_kafka.KafkaException(message.error())
                self.seen_s[message.key().decode()] = time.monotonic()
        self._consumer.close()

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def insert(database: Database, connection: Any, table: str, key: str) -> None:
    connection.execute(f"INSERT INTO {table} VALUES ({database.mark}, {database.mark})", (key, PAYLOAD))


Session = Callable[[Run], None]


def alone(database: Database, servers: str, number: int) -> Session:
    """The database without any record."""
    connection = database.connect()

    def work(run: Run) -> None:
        while run.goes_on():
            with run.measured() as key:
                insert(database, connection, "orders", key)
                connection.commit()
        connection.close()

    return work


def outbox(database: Database, servers: str, number: int) -> Session:
    """A row of the outbox in the same commit; the relay sends it."""
    connection = database.connect()

    def work(run: Run) -> None:
        while run.goes_on():
            with run.measured() as key:
                insert(database, connection, "orders", key)
                insert(database, connection, "outbox", key)
                connection.commit()
        connection.close()

    return work


def relay(database: Database, servers: str, is_over: threading.Event) -> None:
    connection = database.connect()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 2}
    )
    while True:
        rows = connection.execute(f"SELECT id, payload FROM outbox LIMIT {RELAY_BATCH}").fetchall()
        for key, payload in rows:
            producer.produce(TOPIC, payload, key)
        producer.flush()
        for key, _ in rows:
            connection.execute(f"DELETE FROM outbox WHERE id = {database.mark}", (key,))
        connection.commit()
        if not rows:
            if is_over.is_set():
                break
            time.sleep(0.001)
    connection.close()


def two_phase(database: Database, servers: str, number: int) -> Session:
    """fencepost.two_phase with confluent-kafka."""
    connection, coordinator = database.connect(), Coordinator(servers)
    producer = confluent_producer(
        {"bootstrap.servers": servers, "transactional.id": f"confluent-{number}", "linger.ms": 0, "log_level": 2}
    )
    generation = start_session(producer, coordinator, database.log, connection)

    def work(run: Run) -> None:
        while run.goes_on():
            with (
                run.measured() as key,
                transaction(producer, coordinator, database.log, connection, generation=generation),
            ):
                insert(database, connection, "orders", key)
                producer.produce(TOPIC, PAYLOAD, key)
        connection.close()
        coordinator.close()
        producer.close()

    return work


async def with_aiokafka(database: Database, servers: str, sessions: int, seconds: float) -> Run:
    """fencepost.two_phase with aiokafka, and psycopg's AsyncConnection or sqlite3: tasks of one event loop."""
    coordinator = AsyncCoordinator(servers)
    works = [await _aiokafka_session(database, servers, coordinator, number) for number in range(sessions)]
    run = Run(seconds)
    await asyncio.gather(*(work(run) for work in works))
    await coordinator.close()
    return run


async def _aiokafka_session(
    database: Database, servers: str, coordinator: AsyncCoordinator, number: int
) -> Callable[[Run], Awaitable[None]]:
    is_postgres = database.server is not None
    connection: Any = (
        await psycopg.AsyncConnection.connect(database.server.uri)
        if database.server is not None
        else database.connect()
    )
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"aiokafka-{number}")
    generation = await start_session_async(producer, coordinator, database.log, connection)

    async def work(run: Run) -> None:
        statement = f"INSERT INTO orders VALUES ({database.mark}, {database.mark})"
        while run.goes_on():
            with run.measured() as key:
                async with transaction_async(producer, coordinator, database.log, connection, generation=generation):
                    inserted = connection.execute(statement, (key, PAYLOAD))
                    if is_postgres:
                        await inserted
                    await producer.send(TOPIC, PAYLOAD.encode(), key.encode())
        closed = connection.close()
        if is_postgres:
            await closed
        await producer.stop()

    return work


def measure(way: str, database: Database, servers: str, sessions: int, seconds: float) -> Result:
    """Run one way. SQLite has one writer at a time, whatever the number of sessions."""
    reader = None if way == "alone" else Reader(servers)
    if reader is not None:
        reader.start()
    is_over = threading.Event()
    relaying = threading.Thread(target=relay, args=(database, servers, is_over))
    if way == "aiokafka":
        before = database.log_position()
        run = asyncio.run(with_aiokafka(database, servers, sessions, seconds))
    else:
        make = {"alone": alone, "outbox": outbox, "confluent-kafka": two_phase}[way]
        works = [make(database, servers, number) for number in range(sessions)]
        if way == "outbox":
            relaying.start()
        before = database.log_position()
        run = Run(seconds)
        threads = [threading.Thread(target=work, args=(run,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lasted_s = time.monotonic() - run.began_s
    if way == "outbox":
        is_over.set()
        relaying.join()
        lasted_s = time.monotonic() - run.began_s  # until the relay has sent all
    log_bytes = (database.log_position() - before) / len(run.taken_s)
    visible_ms = None
    if reader is not None:
        time.sleep(0.5)
        reader.stop()
        waits = [reader.seen_s[key] - began_s for key, began_s in run.begins.items() if key in reader.seen_s]
        assert len(waits) == len(run.taken_s), (way, len(waits), len(run.taken_s))
        visible_ms = 1000 * statistics.median(waits)
    return Result(len(run.taken_s) / lasted_s, 1000 * statistics.median(run.taken_s), visible_ms, log_bytes)


def show_outage(broker: ProcessBroker) -> None:
    """Write the records of an hour behind an open transaction in one of three partitions, then commit it."""
    servers, topic, partitions = broker.bootstrap_servers, "shared", 3
    broker.topic(topic, partitions=partitions)
    away = confluent_producer({"bootstrap.servers": servers, "transactional.id": "service-that-is-away"})
    away.init_transactions()
    away.begin_transaction()
    away.produce(topic, PAYLOAD, partition=0)
    token = prepare(away)
    before_mb = resident_mb(broker)
    others = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 50,
            "queue.buffering.max.messages": 10**6,
        }
    )
    for number in range(HOUR_RECORDS):
        others.produce(topic, PAYLOAD, partition=number % partitions)
        if number % 1_000 == 0:
            others.poll(0)
        while len(others) > 500_000:
            others.poll(0.1)
    others.flush()
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
    )
    reader.subscribe([topic])
    free_s = read(reader, HOUR_RECORDS - HOUR_RECORDS // partitions)
    after_mb = resident_mb(broker)
    with Coordinator(servers) as coordinator:
        coordinator.complete(token, commit=True)
    held_s = read(reader, HOUR_RECORDS // partitions + 1)
    reader.close()
    print(
        f"{HOUR_RECORDS:,} records of others in {partitions} partitions; one holds {HOUR_RECORDS // partitions:,} back"
    )
    print(f"read meanwhile from the others in {free_s:.1f} s; after the commit the held ones in {held_s:.1f} s")
    print(f"the broker's memory: {before_mb:.0f} MB before, {after_mb:.0f} MB after")


def read(reader: Any, count: int) -> float:
    """Read this many records; returns the seconds that it took."""
    began_s = time.monotonic()
    while count > 0:
        for message in reader.consume(10_000, 0.5):
            if message.error() is not None:
                raise confluent_kafka.KafkaException(message.error())
            count -= 1
    return time.monotonic() - began_s


def resident_mb(broker: ProcessBroker) -> float:
    status = Path(f"/proc/{broker.process_id}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--outage", action="store_true")
    options = parser.parse_args()
    seconds = options.seconds
    if options.outage:
        with ProcessBroker(settings=SETTINGS) as broker:
            show_outage(broker)
        return
    print("| database | sessions | way | transactions/s | one takes | to a reader | log, bytes |")
    print("|---|---|---|---|---|---|---|")
    with postgres_server(is_durable=True) as server, ProcessBroker(settings=SETTINGS) as broker:
        broker.topic(TOPIC, partitions=PARTITIONS)
        with tempfile.TemporaryDirectory() as folder:
            for name, database, counts in (
                ("PostgreSQL", Database(server, Path(folder)), (1, 50)),
                ("SQLite", Database(None, Path(folder)), (1,)),
            ):
                for sessions in counts:
                    for way in ("alone", "outbox", "confluent-kafka", "aiokafka"):
                        measure_and_print(name, way, database, broker.bootstrap_servers, sessions, seconds)


def measure_and_print(name: str, way: str, database: Database, servers: str, sessions: int, seconds: float) -> None:
    results = [measure(way, database, servers, sessions, seconds / ROUNDS) for _ in range(ROUNDS)]
    best = sorted(results)[ROUNDS // 2]
    visible = "" if best.visible_ms is None else f"{best.visible_ms:.1f} ms"
    figures = [f"{best.per_s:,.0f}", f"{best.taken_ms:.1f} ms", visible, f"{best.log_bytes:,.0f}"]
    print(f"| {name} | {sessions} | {way} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
