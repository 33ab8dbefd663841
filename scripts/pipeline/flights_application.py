"""The exactly-once application: consumes `flights`, produces `departures` and `arrivals`, commits both together.

    python -m scripts.pipeline.flights_application --bootstrap HOST:PORT

Each batch of flights is one transaction over several partitions of both topics, with the offsets that it read up to.
Cancelled flights are written too, in a transaction of their own that is aborted; the offsets that the batch's other
transaction commits lead past them. Killed at any moment and started again, it goes on where the last committed
transaction ended: its transactional id fences the former instance and aborts what that left open. It ends when it has
committed its way to the end that the input had at the start. Each step is one JSON object on a line of standard output:

    {"step": "ready" | "committed" | "aborted", "flights": N, "at_s": T}

ready:    former instances are fenced, and a transaction that they left open is aborted.
flights:  how many flights have been dealt with since the topic began.
at_s:     seconds since 1970.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from scripts.pipeline.flights import ARRIVALS_TOPIC, DEPARTURES_TOPIC, FLIGHTS_TOPIC, PARTITION_COUNTS, Flight

TRANSACTIONAL_ID = "flights-application"
GROUP_ID = "flights-application"
FLIGHTS_PER_TRANSACTION = 500
TIMEOUT_S = 60.0


class FlightsApplication:
    """One instance of the application. It calls `report` with each step and the number of flights that have been dealt
    with since the topic began.
    """

    def __init__(
        self, bootstrap_servers: str, flights_per_transaction: int, report: Callable[[str, int], None]
    ) -> None:
        self._report = report
        self._flights_per_transaction = flights_per_transaction
        common = {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            # Re-bootstrapping after all brokers went away makes librdkafka 2.16 forget the coordinator's thread but not
            # the coordinator, and send_offsets_to_transaction then never returns (librdkafka#5511).
            "metadata.recovery.strategy": "none",
            "log_level": 3,
        }
        self._producer = Producer({**common, "transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": 30_000})
        self._consumer = Consumer(
            {
                **common,
                "group.id": GROUP_ID,
                # A static member: started again after a kill, it takes its place back without waiting for the session
                # to run out.
                "group.instance.id": GROUP_ID,
                "session.timeout.ms": 10_000,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._positions: dict[int, int] = {}  # by partition: the offset after the last one committed
        self._end_offsets: dict[int, int] = {}

    def run(self) -> None:
        """Works until the input's end is committed. Raises KafkaException when the client is in a state that only a
        new instance leaves.
        """
        _until_settled(lambda: self._producer.init_transactions(TIMEOUT_S))
        self._find_start_and_end()
        self._report("ready", self._flights)
        self._consumer.subscribe([FLIGHTS_TOPIC])
        while any(self._positions[partition] < end for partition, end in self._end_offsets.items()):
            messages = self._consumer.consume(self._flights_per_transaction, timeout=1.0)
            for message in messages:
                if message.error() is not None:  # a fatal one would be reported once, and nothing would come any more
                    raise KafkaException(message.error())
            if messages:
                self._process(messages)
        self._consumer.close()

    def _find_start_and_end(self) -> None:
        partitions = [TopicPartition(FLIGHTS_TOPIC, partition) for partition in range(PARTITION_COUNTS[FLIGHTS_TOPIC])]
        for partition in self._consumer.committed(partitions, timeout=TIMEOUT_S):
            low, high = self._consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)
            self._positions[partition.partition] = partition.offset if partition.offset >= 0 else low
            self._end_offsets[partition.partition] = high

    @property
    def _flights(self) -> int:
        return sum(self._positions.values())

    def _process(self, batch: Sequence[Message]) -> None:
        flights = [Flight(**json.loads(message.value())) for message in batch]
        offsets: dict[int, int] = {}
        for message in batch:
            offsets[message.partition()] = message.offset() + 1
        try:
            cancelled = [flight for flight in flights if flight.is_cancelled]
            if cancelled:
                self._producer.begin_transaction()
                self._write(cancelled)
                # Aborting drops what was not sent yet, and these are meant to reach the log.
                self._producer.flush(TIMEOUT_S)
                _until_settled(lambda: self._producer.abort_transaction(TIMEOUT_S))
                self._report("aborted", self._flights)
            self._producer.begin_transaction()
            self._write([flight for flight in flights if not flight.is_cancelled])
            progress = [TopicPartition(FLIGHTS_TOPIC, partition, offset) for partition, offset in offsets.items()]
            group = self._consumer.consumer_group_metadata()
            _until_settled(lambda: self._producer.send_offsets_to_transaction(progress, group, TIMEOUT_S))
            _until_settled(lambda: self._producer.commit_transaction(TIMEOUT_S))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            print(f"transaction aborted, its flights are read again: {failure.args[0]}", file=sys.stderr, flush=True)
            _until_settled(lambda: self._producer.abort_transaction(TIMEOUT_S))
            self._report("aborted", self._flights)
            self._rewind()
            return
        self._positions.update(offsets)
        self._report("committed", self._flights)

    def _write(self, flights: Sequence[Flight]) -> None:
        for flight in flights:
            shared = {
                "identifier": flight.identifier,
                "day": flight.day,
                "carrier": flight.carrier,
                "number": flight.number,
            }
            departure = {
                **shared,
                "airport": flight.origin,
                "time": flight.departure_time,
                "delay_minutes": flight.departure_delay_minutes,
            }
            arrival = {
                **shared,
                "airport": flight.destination,
                "time": flight.arrival_time,
                "delay_minutes": flight.arrival_delay_minutes,
            }
            self._produce(DEPARTURES_TOPIC, flight.carrier, departure)
            self._produce(ARRIVALS_TOPIC, flight.carrier, arrival)

    def _produce(self, topic: str, key: str, event: dict[str, Any]) -> None:
        value = json.dumps(event, separators=(",", ":"))
        while True:
            try:
                self._producer.produce(topic, key=key, value=value)
            except BufferError:  # the local queue is full
                self._producer.poll(0.1)
            else:
                return

    def _rewind(self) -> None:
        for partition, position in self._positions.items():
            self._consumer.seek(TopicPartition(FLIGHTS_TOPIC, partition, position or OFFSET_BEGINNING))


def _until_settled(operation: Callable[[], object]) -> None:
    """Calls again for as long as the client says that this may succeed, as it does while the broker is away."""
    while True:
        try:
            operation()
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
        else:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description="Turn flights into departures and arrivals, exactly once.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument("--flights-per-transaction", type=int, metavar="N", default=FLIGHTS_PER_TRANSACTION)
    options = parser.parse_args()

    def report(step: str, flights: int) -> None:
        print(json.dumps({"step": step, "flights": flights, "at_s": time.time()}), flush=True)

    FlightsApplication(options.bootstrap, options.flights_per_transaction, report).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
