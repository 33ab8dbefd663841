"""Compares what Spark made of the application's output with what the data set says, figure by figure."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from rich.table import Table

from scripts.pipeline.flights import ARRIVALS_TOPIC, DEPARTURES_TOPIC, FIGURES_TOPIC, CarrierDay

Figures = dict[tuple[str, str], CarrierDay]  # by carrier and day


@dataclass(frozen=True, slots=True)
class Check:
    """One statement about the run, and what was found where it does not hold."""

    statement: str
    holds: bool
    found: str


def read_parquet(folder: Path) -> Figures:
    """The figures in a folder that the Spark job wrote."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(folder).to_pylist()
    return {
        (row["carrier"], row["day"]): _carrier_day(
            row["flights"], row["departure_delay_minutes"], row["mean_departure_delay_minutes"]
        )
        for row in rows
    }


def read_topic(bootstrap_servers: str) -> Figures:
    """The figures in the topic that the Spark job wrote: the last record of each key counts."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "verdict", "log_level": 3})
    figures: Figures = {}
    try:
        partition = confluent_kafka.TopicPartition(FIGURES_TOPIC, 0, confluent_kafka.OFFSET_BEGINNING)
        _, end_offset = consumer.get_watermark_offsets(partition, timeout=30)
        consumer.assign([partition])
        next_offset = 0
        while next_offset < end_offset:
            for message in consumer.consume(10_000, timeout=1):
                if message.error() is not None:
                    raise confluent_kafka.KafkaException(message.error())
                carrier, day = message.key().decode().split(" ")
                value = json.loads(message.value())
                figures[carrier, day] = _carrier_day(
                    value["flights"], value["departure_delay_minutes"], value["mean_departure_delay_minutes"]
                )
                next_offset = message.offset() + 1
    finally:
        consumer.close()
    return figures


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
    parquet: Figures,
    topic: Figures,
    counts: dict[str, dict[str, dict[str, int]]],
    cancelled_count: int,
) -> list[Check]:
    """All that must hold.

    counts: by isolation level and topic, the `events` that Spark read and the number of different `flights` among them.
    """
    departed = sum(carrier_day.flights for carrier_day in expected.values())
    checks = []
    for name, found in (("Parquet files", parquet), (f"topic {FIGURES_TOPIC}", topic)):
        different = differences(expected, found)
        checks.append(
            Check(
                f"{len(expected):,} figures by carrier and day in the {name} equal the data set's",
                not different,
                f"{len(different)} differ" + "".join(f", {carrier} on {day}" for carrier, day in different[:3]),
            )
        )
    for topic_name in (DEPARTURES_TOPIC, ARRIVALS_TOPIC):
        committed = counts["read_committed"][topic_name]
        checks.append(
            Check(
                f"{topic_name}: every flight that left is committed exactly once ({departed:,})",
                committed == {"events": departed, "flights": departed},
                f"{committed['events']:,} events of {committed['flights']:,} flights",
            )
        )
        uncommitted = counts["read_uncommitted"][topic_name]
        checks.append(
            Check(
                f"{topic_name}: the {cancelled_count:,} cancelled flights are in the log, in aborted transactions",
                uncommitted["flights"] == departed + cancelled_count
                and uncommitted["events"] >= uncommitted["flights"],
                f"{uncommitted['events']:,} events of {uncommitted['flights']:,} flights read uncommitted",
            )
        )
    return checks


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
