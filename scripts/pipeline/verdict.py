"""The verdict on a run: what Spark read and wrote, against what the data set says."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import confluent_kafka
from rich.table import Table

from scripts.pipeline.flights import ARRIVALS_TOPIC, DEPARTURES_TOPIC, FIGURES_TOPIC, CarrierDay

TIMEOUT_S = 30.0

Figures = dict[tuple[str, str], CarrierDay]  # by carrier and day


@dataclass(frozen=True, slots=True)
class Check:
    """One statement about the run, and what was found where it does not hold."""

    statement: str
    holds: bool
    found: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker found in the committed output, in flights.

    expected: flights that left, by the data set.
    lost:     not there, neither departure nor arrival.
    doubled:  events, and figures of Spark, that are there once more than once.
    torn:     with a departure or an arrival only, though a transaction writes both.
    dirty:   cancelled flights that are visible, though only aborted transactions wrote them.
    checks:   everything that must hold.
    """

    expected: int
    lost: int
    doubled: int
    torn: int
    dirty: int
    checks: Sequence[Check]

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks) and not (self.lost or self.doubled or self.torn or self.dirty)

    @property
    def headline(self) -> str:
        return "Exactly once" if self.holds else "NOT exactly once"

    @property
    def figures(self) -> str:
        """The figures in one line."""
        return (
            f"lost {self.lost:,}, doubled {self.doubled:,}, torn {self.torn:,}, "
            f"aborted yet visible {self.dirty:,}, of {self.expected:,} flights"
        )


class Written(NamedTuple):
    """What the Spark job wrote into its topic.

    figures: the last record of each key. records: how many there are.
    repeated: records with no more flights than the record of their key before: the same figure, once more.
    """

    figures: Figures
    records: int
    repeated: int


def read_topic(bootstrap_servers: str) -> Written:
    """Read what is committed in the topic of the Spark job."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "verdict",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 3,
        }
    )
    figures: Figures = {}
    records = repeated = 0
    try:
        consumer.assign([confluent_kafka.TopicPartition(FIGURES_TOPIC, 0, confluent_kafka.OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise TimeoutError(f"the topic {FIGURES_TOPIC} cannot be read")
            if message.error() is not None:
                if message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                    return Written(figures, records, repeated)
                raise confluent_kafka.KafkaException(message.error())
            carrier, day = message.key().decode().split(" ")
            value = json.loads(message.value())
            figure = _carrier_day(
                value["flights"], value["departure_delay_minutes"], value["mean_departure_delay_minutes"]
            )
            before = figures.get((carrier, day), CarrierDay())
            records += 1
            repeated += figure.flights <= before.flights
            figures[carrier, day] = figure
    finally:
        consumer.close()


def _carrier_day(flights: int, departure_delay_minutes: int, mean_departure_delay_minutes: float) -> CarrierDay:
    carrier_day = CarrierDay(flights, departure_delay_minutes)
    if carrier_day.mean_departure_delay_minutes != mean_departure_delay_minutes:
        raise ValueError(f"the mean {mean_departure_delay_minutes} does not belong to {carrier_day}")
    return carrier_day


def differences(expected: Figures, found: Figures) -> list[tuple[str, str]]:
    """The carriers and days whose figures are not the same, or are on one side only."""
    return sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))


def check(
    *,
    expected: Figures,
    written: Written,
    counts: Mapping[str, Mapping[str, int]],
    cancelled_count: int,
) -> Verdict:
    """Check all that must hold.

    counts: by isolation level, what `flights_summary.count_events` returned.
    """
    departed = sum(carrier_day.flights for carrier_day in expected.values())
    checks = []
    different = differences(expected, written.figures)
    checks.append(
        Check(
            f"{FIGURES_TOPIC}: {len(expected):,} figures by carrier and day equal the data set's",
            not different,
            f"{len(different)} differ" + "".join(f", {carrier} on {day}" for carrier, day in different[:3]),
        )
    )
    checks.append(
        Check(
            f"{FIGURES_TOPIC}: Spark wrote each of its {written.records:,} updates once",
            written.repeated == 0,
            f"{written.repeated:,} are there twice",
        )
    )
    committed, uncommitted = counts["read_committed"], counts["read_uncommitted"]
    for name in (DEPARTURES_TOPIC, ARRIVALS_TOPIC):
        events, flights = committed[name], committed[f"{name}_flights"]
        checks.append(
            Check(
                f"{name}: every flight that left is committed exactly once ({departed:,})",
                events == flights == departed,
                f"{events:,} events of {flights:,} flights",
            )
        )
        events, flights = uncommitted[name], uncommitted[f"{name}_flights"]
        checks.append(
            Check(
                f"{name}: the {cancelled_count:,} cancelled flights are in the log, in aborted transactions",
                flights == departed + cancelled_count and events >= flights,
                f"{events:,} events of {flights:,} flights read uncommitted",
            )
        )
    lost = max(0, departed - committed["flights"])
    doubled = written.repeated + sum(
        committed[name] - committed[f"{name}_flights"] for name in (DEPARTURES_TOPIC, ARRIVALS_TOPIC)
    )
    torn, dirty = committed["torn"], committed["cancelled"]
    checks.append(
        Check(
            "each flight's departure and arrival are visible together, and no cancelled flight's are",
            torn == dirty == 0,
            f"{torn:,} flights with one of the two, {dirty:,} cancelled ones",
        )
    )
    return Verdict(departed, lost, doubled, torn, dirty, tuple(checks))


def carrier_table(expected: Figures, found: Figures) -> Table:
    """The figures added up by carrier, the data set's beside Spark's."""
    table = Table(title="Flights that left New York City in 2013, and their mean departure delay", title_justify="left")
    for heading in (
        "carrier",
        "flights in the file",
        "by Spark",
        "mean delay in the file",
        "by Spark",
        "days that differ",
    ):
        table.add_column(heading, justify="left" if heading == "carrier" else "right")
    sums: dict[str, tuple[CarrierDay, CarrierDay]] = defaultdict(lambda: (CarrierDay(), CarrierDay()))
    for side, figures in enumerate((expected, found)):
        for (carrier, _), carrier_day in figures.items():
            total = sums[carrier][side]
            total.flights += carrier_day.flights
            total.departure_delay_minutes += carrier_day.departure_delay_minutes
    different = differences(expected, found)
    for carrier, (in_file, by_spark) in sorted(sums.items()):
        days = sum(1 for other, _ in different if other == carrier)
        table.add_row(
            carrier,
            f"{in_file.flights:,}",
            f"{by_spark.flights:,}",
            _minutes(in_file),
            _minutes(by_spark),
            str(days),
            style="red" if days else None,
        )
    return table


def _minutes(carrier_day: CarrierDay) -> str:
    return f"{carrier_day.mean_departure_delay_minutes:.3f} min" if carrier_day.flights else "-"
