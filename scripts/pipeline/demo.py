"""The demonstration: 336,776 flights through an exactly-once application and PySpark, compared with the file.

    ./scripts/demo [--limit N] [--bootstrap HOST:PORT] [--output DIR] [--picture FILE]

The broker, the application and the Spark job run as their own processes. With kill -9 the application is ended in the
middle of a transaction, the broker under load, and Spark in the middle of a batch; each is started again. Then what
was committed is compared with the file. Everything stays in ./demo-output/flights until the next run: the broker's
data, the logs, picture.svg and report.html. The exit code is 1 on any difference. `./scripts/demo --picture
docs/demo.svg` renews the picture in the documentation.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from fencepost.two_phase import Coordinator
from scripts.pipeline import verdict
from scripts.pipeline.flights import (
    DEPARTURES_TOPIC,
    FLIGHT_COUNT,
    FLIGHTS_TOPIC,
    Flight,
    create_topics,
    load,
    read_flights,
    reference_figures,
)
from scripts.pipeline.flights_application import FLIGHTS_PER_TRANSACTION, TRANSACTIONAL_ID
from scripts.pipeline.flights_summary import SINK
from scripts.pipeline.processes import Application, DemonstrationError, SparkJob
from scripts.pipeline.readers import CountingReader
from scripts.pipeline.report import PICTURE, Report, write_report
from scripts.pipeline.timeline import Timeline
from tests.support.broker_process import BrokerFailedError, BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
KILL_APPLICATION_AT, KILL_BROKER_AT, KILL_SPARK_AT = 1 / 4, 1 / 2, 3 / 4
# Time never ends what Spark has decided to commit.
BROKER_SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "fencepost.two.phase.transactional.ids": f"{SINK}-*",
}
RESTARTS_LIMIT = 5
DOWN_TIME_S = 0.5
MOMENTS_LIMIT = 200  # looks at the application, until one finds it in the middle of a transaction
APPLICATION_TIMEOUT_S = 300.0
SPARK_MOMENTS_S = 60.0  # how long Spark is looked at after the application, until it is in the middle of a batch
REQUEST_TIMEOUT_MS = 2_000


@contextmanager
def connected(bootstrap_servers: str) -> Iterator[Any]:
    """An administration client that gives up soon. Raises KafkaError when no broker answers."""
    administration = KafkaAdminClient(
        bootstrap_servers=bootstrap_servers,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        bootstrap_timeout_ms=REQUEST_TIMEOUT_MS,
    )
    try:
        yield administration
    finally:
        administration.close()


class Demonstration:
    """One run, step by step. `broker` is None where the broker belongs to another process; it is then not killed."""

    def __init__(
        self,
        console: Console,
        *,
        output: Path,
        limit: int | None,
        flights_per_transaction: int = FLIGHTS_PER_TRANSACTION,
        broker: BrokerProcess | None,
        bootstrap_servers: str,
    ) -> None:
        self.timeline = Timeline(lambda: (self._source_count, self._uncommitted.count, self._committed.count))
        self.durations_s: dict[str, float] = {}
        self._console = console
        self._output = output
        self._limit = limit
        self._flight_count = min(limit or FLIGHT_COUNT, FLIGHT_COUNT)
        self._broker = broker
        self._bootstrap_servers = bootstrap_servers
        self._application = Application(
            bootstrap_servers,
            output / "application.log",
            flights_per_transaction=flights_per_transaction,
            on_step=self._application_stepped,
        )
        self._spark = SparkJob(bootstrap_servers, output, on_following=lambda: self.timeline.began("Spark"))
        self._coordinator = Coordinator(bootstrap_servers)
        self._source_count = 0
        self._uncommitted = CountingReader(bootstrap_servers, DEPARTURES_TOPIC, "read_uncommitted")
        self._committed = CountingReader(bootstrap_servers, DEPARTURES_TOPIC, "read_committed")
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )

    def run(self) -> bool:
        """The whole of it; returns whether everything that must hold does."""
        try:
            with self._progress:
                self.start_spark()
                self.load()
                self.run_application()
                counted = self.finish_spark()
        finally:
            self.stop()
        return self._judge(counted)

    def stop(self) -> None:
        """Ends what still runs of it; the broker is the caller's."""
        self._application.kill()
        self._spark.kill()
        self._coordinator.close()
        self.timeline.stop()
        self._uncommitted.stop()
        self._committed.stop()

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{self.timeline.now_s:6.1f} s[/dim]  {text}", highlight=False, soft_wrap=True)

    def load(self) -> None:
        """Writes the flights into their topic."""
        task = self._progress.add_task("loading flights", total=self._flight_count)
        began_at_s = time.monotonic()
        self._uncommitted.start()
        self._committed.start()
        self.timeline.start()
        flights = self._progress.track(read_flights(self._limit), task_id=task, total=self._flight_count)
        count = load(self._bootstrap_servers, self._counted(flights))
        self.durations_s["loading"] = time.monotonic() - began_at_s
        self._say(f"{count:,} flights loaded into the topic {FLIGHTS_TOPIC}")

    def _counted(self, flights: Iterable[Flight]) -> Iterator[Flight]:
        for flight in flights:
            yield flight
            self._source_count += not flight.is_cancelled

    def run_application(self) -> None:
        """Runs the application until it is through; it, the broker and Spark are killed once. Raises
        DemonstrationError.
        """
        task = self._progress.add_task("consume, transform, produce", total=self._flight_count)
        began_at_s = time.monotonic()
        self._start_application("application started")
        is_application_killed, is_broker_killed = False, self._broker is None
        is_spark_killed = False
        restarts_count = 0
        while self._application.exit_code != 0:
            if time.monotonic() - began_at_s > APPLICATION_TIMEOUT_S:
                raise DemonstrationError(f"the application does not come to an end; see {self._application.log_path}")
            self._progress.update(task, completed=self._application.flights)
            share = self._application.flights / self._flight_count
            if self._application.exit_code is not None:
                self.timeline.ended("application")
                restarts_count += 1
                if restarts_count > RESTARTS_LIMIT:
                    raise DemonstrationError(f"the application ends again and again; see {self._application.log_path}")
                self._start_application("application ended, restarted")
            elif not is_application_killed and share >= KILL_APPLICATION_AT:
                self._kill_application()
                is_application_killed = True
            elif not is_broker_killed and share >= KILL_BROKER_AT:
                self._kill_broker()
                is_broker_killed = True
            elif not is_spark_killed and share >= KILL_SPARK_AT:
                is_spark_killed = self._kill_spark_in_a_batch()
            time.sleep(0.02)
        self._application.kill()  # it has ended: this reads its last words
        self._progress.update(task, completed=self._application.flights)
        self.durations_s["consume, transform, produce"] = time.monotonic() - began_at_s
        self.timeline.ended("application")
        self._uncommitted.catch_up()
        self._committed.catch_up()
        self.timeline.stop()
        self._say(f"the application has committed its way through {self._application.flights:,} flights")
        if not (is_application_killed and is_broker_killed):
            raise DemonstrationError("the application was through before everything could be killed")
        give_up_at_s = time.monotonic() + SPARK_MOMENTS_S
        while not is_spark_killed:
            is_spark_killed = self._kill_spark_in_a_batch(or_now=time.monotonic() > give_up_at_s)
            time.sleep(0.005)

    def _start_application(self, label: str) -> None:
        self.timeline.began("application")
        self._application.start()
        self._say(label)

    def _application_stepped(self, step: str, at_s: float) -> None:
        at_s = self.timeline.since_began_s(at_s)
        if step == "ready":
            self.timeline.former_producers_fenced(at_s)
        else:
            self.timeline.transaction_ended(step, at_s)

    def _kill_application(self) -> None:
        with connected(self._bootstrap_servers) as administration:
            # The moment that matters is the middle of a transaction: held still, the application cannot leave it.
            for _ in range(MOMENTS_LIMIT):
                self._application.pause()
                state = self._transaction_state(administration)
                if state == "Ongoing":
                    break
                self._application.resume()
                time.sleep(random.uniform(0.001, 0.01))
            self._application.kill()
            self.timeline.ended("application", is_killed=True)
            if state == "Ongoing":
                self.timeline.transaction_cut_off()
        self._say(
            f"[red]application: kill -9[/red] after {self._application.flights:,} flights; "
            f"its transaction is left {state}"
        )
        time.sleep(DOWN_TIME_S)
        self._start_application("application restarted")

    def _transaction_state(self, administration: Any) -> str:
        described = administration.describe_transactions([TRANSACTIONAL_ID])
        return str(described[TRANSACTIONAL_ID].state.value)

    def _kill_broker(self) -> None:
        assert self._broker is not None
        self._broker.kill()
        killed_at_s = time.monotonic()
        self.timeline.ended("broker", is_killed=True)
        self._say(f"[red]broker: kill -9[/red] after {self._application.flights:,} flights")
        time.sleep(DOWN_TIME_S)
        restarted_at_s = time.monotonic()
        self._broker.start()
        self.durations_s["broker's recovery"] = time.monotonic() - restarted_at_s
        self.timeline.began("broker")
        self._say(
            f"broker restarted on its data, ready in {time.monotonic() - restarted_at_s:.2f} s; "
            f"{time.monotonic() - killed_at_s:.2f} s after the kill"
        )

    def start_spark(self) -> None:
        """Makes the topics, and starts the Spark job, which follows the application. Raises DemonstrationError."""
        self.timeline.began("broker", 0.0)
        create_topics(self._bootstrap_servers)
        self._start_spark("Spark started")
        self._spark.wait_until_it_follows()
        self._say("Spark follows what will be committed")

    def _start_spark(self, label: str) -> None:
        self._spark.start()
        self._say(label)

    def _kill_spark_in_a_batch(self, *, or_now: bool = False) -> bool:
        """Kills the Spark job and starts it again, if it is in the middle of a batch or `or_now`; returns whether."""
        if not (self._coordinator.in_doubt(f"{SINK}-.*") or or_now):
            return False
        self._spark.kill()
        self.timeline.ended("Spark", is_killed=True)
        open_count = len(self._coordinator.in_doubt(f"{SINK}-.*"))
        self._say(f"[red]Spark: kill -9[/red]; {open_count} of its transactions are left open")
        self._start_spark("Spark restarted")
        return True

    def finish_spark(self) -> dict[str, Any]:
        """Has the Spark job read to the end; returns what it counted. Raises DemonstrationError."""
        self._progress.add_task("PySpark", total=None)
        began_at_s = time.monotonic()
        self._spark.wait_until_it_follows()
        counted = self._spark.finish()
        self.timeline.ended("Spark")
        self.durations_s["PySpark, after the application"] = time.monotonic() - began_at_s
        self._say("Spark has read everything and written its figures")
        return counted

    def _judge(self, counted: dict[str, Any]) -> bool:
        flights = list(read_flights(self._limit))
        expected = reference_figures(flights)
        written = verdict.read_topic(self._bootstrap_servers)
        found = verdict.check(
            expected=expected,
            written=written,
            counts=counted,
            cancelled_count=sum(flight.is_cancelled for flight in flights),
        )
        self.timeline.ended("broker")
        self._console.print(verdict.carrier_table(expected, written.figures))
        for one in found.checks:
            sign = "[green]ok[/green]   " if one.holds else "[red]WRONG[/red]"
            self._console.print(f"{sign} {one.statement}: {one.found}", highlight=False, soft_wrap=True)
        self._console.print(self._timings())
        report_path = write_report(Report(self.timeline.record, found, self._timing_rows()), self._output)
        self._console.print(f"Report with a picture of the run: {report_path}", highlight=False, soft_wrap=True)
        colour = "green" if found.holds else "red"
        self._console.print(
            f"[bold {colour}]{found.headline}: {found.figures}.[/bold {colour}]", highlight=False, soft_wrap=True
        )
        return found.holds

    def _timing_rows(self) -> list[tuple[str, str, str]]:
        """(step, seconds, rate)."""
        events = {"loading": self._flight_count, "consume, transform, produce": 2 * self._flight_count}
        rows = [
            (step, f"{duration_s:.2f}", f"{events[step] / duration_s:,.0f} events/s" if step in events else "")
            for step, duration_s in self.durations_s.items()
        ]
        return [*rows, ("all", f"{self.timeline.now_s:.2f}", "")]

    def _timings(self) -> Table:
        table = Table("step", "seconds", "", title="Timings", title_justify="left")
        for row in self._timing_rows():
            table.add_row(*row)
        return table


def prepare_output(output: Path) -> None:
    """Empties the folder of an earlier run. Refuses, with DemonstrationError, a folder that no demonstration made."""
    marker = output / ".flights-demonstration"
    if output.exists() and any(output.iterdir()):
        if not marker.exists():
            raise DemonstrationError(f"{output} is not empty, and not from an earlier demonstration")
        shutil.rmtree(output)
    output.mkdir(parents=True, exist_ok=True)
    marker.touch()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N flights")
    parser.add_argument("--flights-per-transaction", type=int, metavar="N", default=FLIGHTS_PER_TRANSACTION)
    parser.add_argument("--output", type=Path, default=ROOT / "demo-output" / "flights")
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="use this broker, which must be fresh and is not killed"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also write the picture there, if all is right")
    options = parser.parse_args()
    console = Console()
    # That the broker goes away is part of the plan; kafka-python would report each attempt to reach it.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    # SIGTERM unwinds like Ctrl-C, so that the processes started here are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    output = options.output.resolve()
    try:
        prepare_output(output)
        with ExitStack() as stack:
            broker = None
            if options.bootstrap is None:
                broker = stack.enter_context(BrokerProcess(output / "broker", settings=BROKER_SETTINGS))
                console.print(f"broker ready at {broker.bootstrap}, process {broker.process_id}", highlight=False)
            demonstration = Demonstration(
                console,
                output=output,
                limit=options.limit,
                flights_per_transaction=options.flights_per_transaction,
                broker=broker,
                bootstrap_servers=options.bootstrap or (broker.bootstrap if broker else ""),
            )
            if not demonstration.run():
                return 1
            if options.picture is not None:
                shutil.copyfile(output / PICTURE, options.picture)
            return 0
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    except (DemonstrationError, BrokerFailedError, KafkaError) as failure:
        console.print(f"[bold red]{type(failure).__name__}:[/bold red] {failure}", highlight=False, soft_wrap=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
