"""A source that does everything wrong decides nothing, stops nothing, and is believed once it answers properly."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from fencepost.check_back.records import AUDIT_TOPIC
from fencepost.two_phase import Coordinator, Outcome, Token, confluent_producer, prepare
from tests.support import conditions
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TRANSACTIONS = 12
YES = b'{"outcome": "commit"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
WRONG: dict[str, bytes] = {
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: /outcome/x\r\nContent-Length: 21\r\n\r\n" + YES,
    "an error": b"HTTP/1.1 500 No\r\nContent-Length: 21\r\n\r\n" + YES,
    "another success": b"HTTP/1.1 201 Made\r\nContent-Length: 21\r\n\r\n" + YES,
    "a key twice": OK % (43, b'{"outcome": "commit",  "outcome": "commit"}'),
    "not a number": OK % (16, b'{"outcome": NaN}'),
    "another case": OK % (21, b'{"outcome": "COMMIT"}'),
    "a key too many": OK % (31, b'{"outcome": "commit", "sure": 0}'),
    "half a body": OK % (210, YES),
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "another protocol": b"+PONG\r\n" * 1000,
    "without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n15\r\n%s\r\n%s"
    % (YES, b"4\r\n    \r\n" * 9000),
    "nothing": b"",
}
until = partial(conditions.until, timeout_s=100)


class Source:
    """An HTTP service of one thread. It gives all wrong answers in turn, until `is_honest`."""

    def __init__(self) -> None:
        self.is_honest = False
        self.gave: Counter[str] = Counter()
        self._turn = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/outcome/{{token}}"

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                try:
                    self._answer(connection)
                except OSError:
                    pass  # the resolver has heard enough

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(5)
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(4096)
        if self.is_honest:
            number = int(head.partition(b" HTTP")[0].rpartition(b"-")[2])
            connection.sendall(
                OK % (21 if number % 2 == 0 else 20, YES if number % 2 == 0 else b'{"outcome": "abort"}')
            )
            return
        name = list(WRONG)[self._turn % len(WRONG)]
        self._turn += 1
        self.gave[name] += 1
        connection.sendall(WRONG[name])


@pytest.fixture
def source() -> Iterator[Source]:
    made = Source()
    yield made
    made.close()


def test_no_wrong_answer_decides_and_the_right_ones_do_afterwards(source: Source, tmp_path: Path) -> None:
    of_orders = {"ids": "order-*", "type": "http", "url": source.url, "first.ms": "0", "interval.ms": "50"}
    of_orders |= {"interval.max.ms": "200", "timeout.ms": "1000", "checks.max": "1", "exhausted": "commit"}
    settings = {f"fencepost.check.back.orders.{name}": text for name, text in of_orders.items()}
    settings |= {"fencepost.check.back.resolvers": "orders", "transaction.two.phase.commit.enable": "true"}
    with BrokerProcess(tmp_path / "data", settings=settings | {"num.partitions": "1"}) as broker:
        producers = []  # their sessions hang
        tokens: list[Token] = []
        for number in range(TRANSACTIONS):
            producer = confluent_producer(
                {"bootstrap.servers": broker.bootstrap, "transactional.id": f"order-{number}", "log_level": 0}
            )
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce("orders", str(number).encode())
            tokens.append(prepare(producer))
            producers.append(producer)
        with Coordinator(broker.bootstrap) as coordinator:
            until(lambda: set(source.gave) == set(WRONG) and sum(source.gave.values()) > 3 * len(WRONG))
            assert [coordinator.outcome(token) for token in tokens] == [Outcome.PREPARED] * TRANSACTIONS
            source.is_honest = True
            until(lambda: not coordinator.in_doubt("order-.*"))
            outcomes = [coordinator.outcome(token) for token in tokens]
        assert outcomes == [Outcome.COMMITTED, Outcome.ABORTED] * (TRANSACTIONS // 2)
        assert records(broker.bootstrap, "orders") == [str(number).encode() for number in range(0, TRANSACTIONS, 2)]
        audit = [json.loads(value) for value in records(broker.bootstrap, AUDIT_TOPIC)]
        asked = [one for one in audit if one["event"] == "question"]
        reasons = {
            one["reason"].partition(" at ")[2].partition(" ")[2] for one in asked if one["answer"] == "unreachable"
        }
        assert len(reasons) >= 6
        # `exhausted=commit` guesses after one check: nothing that was wrong has counted as one.
        assert {one["answer"] for one in asked} == {"unreachable", "commit", "abort"}
        assert {one["who"] for one in audit if one["event"] == "decision"} == {"resolver"}
        assert "Traceback" not in broker.output
        assert "/outcome/" not in broker.output.replace(source.url, "")


def records(bootstrap: str, topic: str) -> list[bytes]:
    """All committed records of partition 0."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end = consumer.end_offsets([place])[place]
    found: list[bytes] = []
    while consumer.position(place) < end:
        found += [record.value for batch in consumer.poll(200).values() for record in batch]
    consumer.close()
    return found
