"""A slice of the demonstration: flights through the application and Spark, with everything killed on the way."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fencepost.spark import register
from scripts.pipeline import verdict
from scripts.pipeline.demo import Demonstration
from scripts.pipeline.flights import create_topics, load, read_flights, reference_figures
from scripts.pipeline.flights_summary import summarize
from scripts.pipeline.timeline import COMMITTED, CUT_OFF
from tests.support.broker_process import ROOT, BrokerProcess

FLIGHTS = 3_000
# Small transactions, so that the slice takes long enough for something to be killed in the middle of it.
FLIGHTS_PER_TRANSACTION = 10


@pytest.fixture
def demonstration(broker: BrokerProcess, tmp_path: Path) -> Iterator[Demonstration]:
    prepared = Demonstration(
        Console(file=io.StringIO()),
        output=tmp_path,
        limit=FLIGHTS,
        flights_per_transaction=FLIGHTS_PER_TRANSACTION,
        broker=broker,
        bootstrap_servers=broker.bootstrap,
    )
    yield prepared
    prepared.stop()


def run_application(bootstrap: str) -> None:
    command = [sys.executable, "-m", "scripts.pipeline.flights_application", "--bootstrap", bootstrap]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=60)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_flight_and_figure_is_there_once_though_application_broker_and_spark_were_killed(
    broker: BrokerProcess, demonstration: Demonstration
) -> None:
    demonstration.start_spark()
    demonstration.load()
    demonstration.run_application()
    counts = demonstration.finish_spark()
    flights = list(read_flights(FLIGHTS))
    found = verdict.check(
        expected=reference_figures(flights),
        written=verdict.read_topic(broker.bootstrap),
        counts=counts,
        cancelled_count=sum(flight.is_cancelled for flight in flights),
    )
    assert [one for one in found.checks if not one.holds] == []
    assert found.holds
    record = demonstration.timeline.record
    assert sorted(life.actor for life in record.lives if life.is_killed) == ["Spark", "application", "broker"]
    assert record.count(COMMITTED) > 0
    assert all(one.fenced_s is not None for one in record.transactions if one.outcome == CUT_OFF)
    # The two readers saw what Spark saw.
    assert record.samples[-1].source == record.samples[-1].committed == found.expected
    assert record.samples[-1].uncommitted == counts["read_uncommitted"]["departures"]


def test_figures_grow_from_the_checkpoint_and_a_micro_batch_run_again_writes_nothing(
    spark: Any, tmp_path: Path
) -> None:
    register(spark)
    checkpoint = tmp_path / "checkpoint"
    with BrokerProcess(tmp_path / "data") as broker:
        create_topics(broker.bootstrap)
        flights = list(read_flights(2_000))
        load(broker.bootstrap, flights[:1_200])
        run_application(broker.bootstrap)
        summarize(spark, broker.bootstrap, checkpoint)
        first = verdict.read_topic(broker.bootstrap)
        assert first.figures == reference_figures(flights[:1_200])

        load(broker.bootstrap, flights[1_200:])
        run_application(broker.bootstrap)
        summarize(spark, broker.bootstrap, checkpoint)
        second = verdict.read_topic(broker.bootstrap)
        assert second.figures == reference_figures(flights)
        assert second.repeated == 0

        # As if the job had been killed after writing its results and before noting that the micro-batch was done.
        newest = max(
            (one for one in (checkpoint / "commits").iterdir() if one.name.isdecimal()), key=lambda one: int(one.name)
        )
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink()
        summarize(spark, broker.bootstrap, checkpoint)
        assert verdict.read_topic(broker.bootstrap) == second
