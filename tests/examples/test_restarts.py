"""The broker gets kill -9 under each example, and starts again: the example goes on, or ends with an error, and never
hangs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.testing.process import ProcessBroker
from scripts.pipeline import flights

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
FIRST_S, LIMIT_S = 100, 150

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

BILLING = """
import sys
from billing import Billing
service = Billing(sys.argv[1])
while True:
    service.bill_next()
"""
SHIPPING = """
import sys
from shipping import Worker
worker = Worker(sys.argv[1])
while True:
    worker.work(timeout_ms=5_000)
"""
PAYMENTS = """
import asyncio, sys
from payments import Payments
async def main():
    service = Payments(sys.argv[1])
    await service.start()
    while True:
        await service.handle_one()
asyncio.run(main())
"""
FAUST = (sys.executable, "-m", "faust", "-A", "counting", "worker", "--without-web")
FASTSTREAM = (sys.executable, "-c", "import asyncio, greetings; asyncio.run(greetings.app.run())")
ORDERS = [f"order-{number}" for number in range(150)]
ORDER = '{"to": "Ada"}'


@pytest.fixture
def broker() -> Iterator[ProcessBroker]:
    with ProcessBroker() as started:
        yield started


@contextmanager
def running(broker: ProcessBroker, folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "KAFKA": broker.bootstrap_servers},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def restart(broker: ProcessBroker) -> None:
    broker.kill()
    broker.restart()


@pytest.mark.parametrize(
    ("project", "program", "source", "target", "value"),
    [
        ("confluent_kafka", (sys.executable, "-c", BILLING), "orders", "bills", "tea"),
        ("kafka_python", (sys.executable, "-c", SHIPPING), "orders", "shipments", ORDER),
        ("aiokafka", (sys.executable, "-c", PAYMENTS), "payments", "receipts", "7 EUR"),
        ("faust", FAUST, "words", "counts", "tea"),
        ("faststream", FASTSTREAM, "names", "greetings", "Ada"),
    ],
    ids=lambda given: given if isinstance(given, str) and given.isidentifier() else "",
)
def test_an_example_outlives_the_broker_or_ends(
    broker: ProcessBroker, project: str, program: tuple[str, ...], source: str, target: str, value: str, tmp_path: Path
) -> None:
    broker.topic(source)
    broker.topic(target)
    arguments = ("--datadir", str(tmp_path)) if project == "faust" else (broker.bootstrap_servers,)
    if project == "faust":
        program = (*program[:3], *arguments, *program[3:])
    elif project != "faststream":
        program = (*program, *arguments)
    with running(broker, EXAMPLES / project, *program) as process:
        broker.produce(source, value)
        broker.records(target, count=1, timeout=FIRST_S)
        restart(broker)
        broker.produce(source, value)
        broker.wait_until(
            lambda: process.poll() is not None or len(broker.records(target)) >= 2,
            LIMIT_S,
            lambda: f"{project} neither goes on nor ends",
        )
        assert process.poll() != 0


def test_the_order_service_goes_on_or_ends(broker: ProcessBroker, tmp_path: Path) -> None:
    broker.topic("orders")
    program = str(EXAMPLES / "two_phase" / "order_service.py")
    command = (sys.executable, program, broker.bootstrap_servers, str(tmp_path / "orders.sqlite"), *ORDERS)
    with running(broker, tmp_path, *command) as process:
        broker.records("orders", count=1, timeout=FIRST_S)
        restart(broker)
        process.wait(LIMIT_S)
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=100, check=True)
    assert done.returncode == 0
    assert sorted(str(record.value, "utf-8") for record in broker.records("orders") if record.value) == sorted(ORDERS)


def flight(number: int) -> str:
    return json.dumps(flights.Flight(number, "2026-11-28", "AA", 1, "JFK", "SFO", 900, 1, 1200, 2)._asdict())


def test_the_application_of_the_demo_goes_on_or_ends(broker: ProcessBroker) -> None:
    for topic, count in flights.PARTITION_COUNTS.items():
        broker.topic(topic, partitions=count)
    for partition in range(2):
        broker.produce(flights.FLIGHTS_TOPIC, *map(flight, range(20)), partition=partition)
    command = (sys.executable, "-m", "scripts.pipeline.flights_application", "--flights-per-transaction", "1")
    with running(broker, ROOT, *command, "--bootstrap", broker.bootstrap_servers) as process:
        broker.wait_until(
            lambda: "CompleteCommit" in broker.transactions().values(), FIRST_S, lambda: "it commits nothing"
        )
        restart(broker)
        process.wait(LIMIT_S)


def test_a_fatal_error_of_its_consumer_ends_the_application_of_the_demo(broker: ProcessBroker) -> None:
    for topic, count in flights.PARTITION_COUNTS.items():
        broker.topic(topic, partitions=count)
    for partition in range(2):  # more than it reads before its first heartbeat
        broker.produce(flights.FLIGHTS_TOPIC, *map(flight, range(2_000)), partition=partition)
    command = (sys.executable, "-m", "scripts.pipeline.flights_application", "--flights-per-transaction", "1")
    with running(broker, ROOT, *command, "--bootstrap", broker.bootstrap_servers) as process:
        broker.wait_until(
            lambda: "CompleteCommit" in broker.transactions().values(), FIRST_S, lambda: "it commits nothing"
        )
        broker.fail("Heartbeat", "FENCED_INSTANCE_ID", count=1)
        assert process.wait(LIMIT_S) == 1
