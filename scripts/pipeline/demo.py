"""The demonstration: 336,776 flights through an exactly-once application and PySpark, compared with the file.

    ./scripts/demo [--limit N] [--bootstrap HOST:PORT] [--output DIR]

The broker and the application run as processes of their own. Once a third of the flights is through, the application
is killed with kill -9, in the middle of a transaction, and started again; at two thirds the broker is. Then Spark reads
what was committed. Everything stays in ./demo-output/flights until the next run: the broker's data, the logs, Spark's
figures and timeline.png. The exit code is 1 on any difference.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from scripts.pipeline import verdict
from scripts.pipeline.flights import FLIGHT_COUNT, FLIGHTS_TOPIC, create_topics, load, read_flights, reference_figures
from scripts.pipeline.flights_application import FLIGHTS_PER_TRANSACTION, TRANSACTIONAL_ID
from scripts.pipeline.timeline import Timeline, connected, draw
from tests.support.broker_process import BrokerFailedError, BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
KILL_APPLICATION_AT, KILL_BROKER_AT = 1 / 3, 2 / 3
RESTARTS_LIMIT = 5
DOWN_TIME_S = 0.5
MOMENTS_LIMIT = 200  # looks at the application, until one finds it in the middle of a transaction
APPLICATION_TIMEOUT_S = 300.0
SPARK_TIMEOUT_S = 600.0


class DemonstrationError(RuntimeError):
    """A part of the demonstration did not do its work; the message says which, and where its log is."""


class Application:
    """The consume-transform-produce application as a process of its own; `flights` is the last progress that it
    reported."""

    def __init__(self, bootstrap_servers: str, log_path: Path, *, flights_per_transaction: int) -> None:
        self.flights = 0
        self.log_path = log_path
        self._command = [
            *(sys.executable, "-m", "scripts.pipeline.flights_application"),
            *("--bootstrap", bootstrap_servers, "--flights-per-transaction", str(flights_per_transaction)),
        ]
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def start(self) -> None:
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        self._reader = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
        self._reader.start()

    def pause(self) -> None:
        """SIGSTOP: it stays where it is until `resume` or `kill`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and every word that it said before is read."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.flights = json.loads(line)["flights"]


class Demonstration:
    """One run, step by step. `broker` is None where the broker is somebody else's, which is then not killed."""

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
        self.timeline = Timeline(bootstrap_servers)
        self.durations_s: dict[str, float] = {}
        self._console = console
        self._output = output
        self._limit = limit
        self._flight_count = min(limit or FLIGHT_COUNT, FLIGHT_COUNT)
        self._broker = broker
        self._bootstrap_servers = bootstrap_servers
        self._application = Application(
            bootstrap_servers, output / "application.log", flights_per_transaction=flights_per_transaction
        )
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
                self.load()
                self.run_application()
                spark = self._run_spark()
        finally:
            self.stop()
        draw(self.timeline, self._output / "timeline.png")
        return self._judge(spark)

    def stop(self) -> None:
        """Ends what still runs of it; the broker is the caller's."""
        self.timeline.stop()
        self._application.kill()

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{self.timeline.now_s:6.1f} s[/dim]  {text}", highlight=False, soft_wrap=True)

    def load(self) -> None:
        """Makes the topics and writes the flights into theirs."""
        task = self._progress.add_task("loading flights", total=self._flight_count)
        began_at_s = time.monotonic()
        create_topics(self._bootstrap_servers)
        count = load(
            self._bootstrap_servers,
            self._progress.track(read_flights(self._limit), task_id=task, total=self._flight_count),
        )
        self.durations_s["loading"] = time.monotonic() - began_at_s
        self._say(f"{count:,} flights loaded into the topic {FLIGHTS_TOPIC}")

    def run_application(self) -> None:
        """Runs the application until it is through, killing it once and the broker once. Raises DemonstrationError."""
        task = self._progress.add_task("consume, transform, produce", total=self._flight_count)
        began_at_s = time.monotonic()
        self.timeline.start()
        self._start_application("application started")
        is_application_killed, is_broker_killed = False, self._broker is None
        restarts_count = 0
        while self._application.exit_code != 0:
            if time.monotonic() - began_at_s > APPLICATION_TIMEOUT_S:
                raise DemonstrationError(f"the application does not come to an end; see {self._application.log_path}")
            self._progress.update(task, completed=self._application.flights)
            share = self._application.flights / self._flight_count
            if self._application.exit_code is not None:
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
            time.sleep(0.02)
        self._application.kill()  # it has ended: this reads its last words
        self._progress.update(task, completed=self._application.flights)
        self.durations_s["consume, transform, produce"] = time.monotonic() - began_at_s
        self.timeline.mark("application done")
        self.timeline.stop()
        self._say(f"the application has committed its way through {self._application.flights:,} flights")
        if not (is_application_killed and is_broker_killed):
            raise DemonstrationError("the application was through before anything could be killed")

    def _start_application(self, label: str) -> None:
        self._application.start()
        self.timeline.mark(label)
        self._say(label)

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
            self.timeline.mark("application: kill -9", is_failure=True)
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
        self.timeline.mark("broker: kill -9", is_failure=True)
        self._say(f"[red]broker: kill -9[/red] after {self._application.flights:,} flights")
        time.sleep(DOWN_TIME_S)
        restarted_at_s = time.monotonic()
        self._broker.start()
        self.durations_s["broker's recovery"] = time.monotonic() - restarted_at_s
        self.timeline.mark("broker restarted")
        self._say(
            f"broker restarted on its data, ready in {time.monotonic() - restarted_at_s:.2f} s; "
            f"{time.monotonic() - killed_at_s:.2f} s after the kill"
        )

    def _run_spark(self) -> dict[str, Any]:
        self._progress.add_task("PySpark", total=None)
        began_at_s = time.monotonic()
        log_path = self._output / "spark.log"
        command = [
            *(sys.executable, str(ROOT / "scripts" / "pipeline" / "flights_summary.py")),
            *("--bootstrap", self._bootstrap_servers, "--output", str(self._output / "spark"), "--count"),
        ]
        with log_path.open("w") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                printed, _ = process.communicate(timeout=SPARK_TIMEOUT_S)
            finally:
                if process.poll() is None:
                    process.kill()  # the JVM ends when its parent's end of the pipe is gone
                    process.wait()
            log.write(printed)
        if process.returncode != 0:
            raise DemonstrationError(f"the Spark job failed; see {log_path}")
        self.durations_s["PySpark"] = time.monotonic() - began_at_s
        self._say("Spark has read the output and written its figures")
        result: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
        return result

    def _judge(self, spark: dict[str, Any]) -> bool:
        flights = list(read_flights(self._limit))
        expected = reference_figures(flights)
        parquet = verdict.read_parquet(Path(spark["figures"]))
        checks = verdict.check(
            expected=expected,
            parquet=parquet,
            topic=verdict.read_topic(self._bootstrap_servers),
            counts=spark["counts"],
            cancelled_count=sum(flight.is_cancelled for flight in flights),
        )
        self._console.print(verdict.carrier_table(expected, parquet))
        for one in checks:
            sign = "[green]ok[/green]   " if one.holds else "[red]WRONG[/red]"
            self._console.print(f"{sign} {one.statement}: {one.found}", highlight=False, soft_wrap=True)
        self._console.print(self._timings())
        self._console.print(f"Picture of the run: {self._output / 'timeline.png'}", highlight=False, soft_wrap=True)
        is_right = all(one.holds for one in checks)
        if is_right:
            self._console.print(
                "[bold green]Exactly once: no difference between what Spark read and the file.[/bold green]"
            )
        else:
            self._console.print("[bold red]There are differences; see the lines marked WRONG.[/bold red]")
        return is_right

    def _timings(self) -> Table:
        table = Table("step", "seconds", "", title="Timings", title_justify="left")
        events = {"loading": self._flight_count, "consume, transform, produce": 2 * self._flight_count}
        for step, duration_s in self.durations_s.items():
            rate = f"{events[step] / duration_s:,.0f} events/s" if step in events else ""
            table.add_row(step, f"{duration_s:.2f}", rate)
        table.add_row("all", f"{self.timeline.now_s:.2f}", "")
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
                broker = stack.enter_context(BrokerProcess(output / "broker"))
                console.print(f"broker ready at {broker.bootstrap}, process {broker.process_id}", highlight=False)
            demonstration = Demonstration(
                console,
                output=output,
                limit=options.limit,
                flights_per_transaction=options.flights_per_transaction,
                broker=broker,
                bootstrap_servers=options.bootstrap or (broker.bootstrap if broker else ""),
            )
            return 0 if demonstration.run() else 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    except (DemonstrationError, BrokerFailedError, KafkaError) as failure:
        console.print(f"[bold red]{type(failure).__name__}:[/bold red] {failure}", highlight=False, soft_wrap=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
