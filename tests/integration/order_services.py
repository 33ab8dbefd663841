"""Services that write orders to a database and to a topic, and die, hang or race at random, as a process:

    python -m tests.integration.order_services BOOTSTRAP URI COUNT

It prints "they write", and "done" when all orders are decided. Sessions that hang go on existing until it is killed.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from functools import partial
from typing import Any

import psycopg

from fencepost.two_phase import Coordinator, PostgresLog, confluent_producer, prepare, recover, transaction
from tests.support import conditions

ORDERS = 12
BEHAVIOURS = ("dies before", "dies after", "commits", "commits", "is slow")
LONG_S = 1.5
until = partial(conditions.until, timeout_s=60)


class Service:
    """One instance of a service, which writes orders to its database and to a topic."""

    def __init__(self, bootstrap: str, uri: str, number: int) -> None:
        self.transactional_id = f"order-{number}"
        self.bootstrap, self._uri = bootstrap, uri
        self._chance = random.Random(number)
        self._log = PostgresLog(weak="accept")
        self._connection = psycopg.connect(uri)
        self._producer: Any = None
        self._left: list[Any] = []  # of sessions that hang
        self._generation = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Coordinator(self.bootstrap) as coordinator:
                for order in range(ORDERS):
                    # The first two of all behaviours but these are left to the check-back for certain.
                    behaviour = BEHAVIOURS[order] if order < 2 else self._chance.choice(BEHAVIOURS)
                    self._write(coordinator, f"{self.transactional_id}-{order}", behaviour)
                    if self._producer is None and (order < 2 or self._chance.random() < 0.5):
                        self._wait_until_decided(coordinator)
        except BaseException as error:  # noqa: BLE001  # the test raises it
            self.failure = error
        finally:
            self._connection.close()

    def _write(self, coordinator: Coordinator, name: str, behaviour: str) -> None:
        try:
            if self._producer is None:
                self._start(coordinator)
            if behaviour.startswith("dies"):
                self._die(name, commits=behaviour == "dies after")
                return
            with transaction(
                self._producer, coordinator, self._log, self._connection, generation=self._generation, timeout_s=10
            ):
                self._insert(name)
                time.sleep(LONG_S if behaviour == "is slow" else self._chance.random() * 0.2)
        except Exception:  # noqa: BLE001  # fenced, or without its database: the next session recovers
            self._end_session()

    def _start(self, coordinator: Coordinator) -> None:
        self._generation = recover(coordinator, self._log, self._connection, self.transactional_id)
        self._producer = confluent_producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.transactional_id, "log_level": 0}
        )
        self._producer.init_transactions(20)

    def _die(self, name: str, *, commits: bool) -> None:
        self._log.begin(self._connection, self._generation, self.transactional_id)
        self._producer.begin_transaction()
        self._insert(name)
        self._log.record(self._connection, self._generation, prepare(self._producer, timeout_s=10))
        if commits:
            self._connection.commit()
        self._end_session()

    def _insert(self, name: str) -> None:
        self._connection.execute("INSERT INTO orders VALUES (%s)", (name,))
        self._producer.produce("orders", name.encode(), partition=0)

    def _end_session(self) -> None:
        """As if the process had died, and its connections had not: the producer goes on existing."""
        self._connection.close()
        until(self._connect)
        if self._producer is not None:
            self._left.append(self._producer)
        self._producer = None

    def _connect(self) -> bool:
        try:
            self._connection = psycopg.connect(self._uri)
        except psycopg.OperationalError:
            return False
        return True

    def _wait_until_decided(self, coordinator: Coordinator) -> None:
        until(lambda: not coordinator.in_doubt(self.transactional_id))


def main(bootstrap: str, uri: str, count: int) -> None:
    services = [Service(bootstrap, uri, number) for number in range(count)]
    threads = [threading.Thread(target=service.run) for service in services]
    for thread in threads:
        thread.start()
    sys.stdout.write("they write\n")
    sys.stdout.flush()
    for thread in threads:
        thread.join()
    for service in services:
        if service.failure is not None:
            raise service.failure
    sys.stdout.write("done\n")
    sys.stdout.flush()
    sys.stdin.readline()  # until it is killed


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
