"""Run of one soak, from the creation of its topics to its report."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from fencepost.history.writer import HistoryWriter
from fencepost.soak.broker import Broker, BrokerDiedError
from fencepost.soak.client_process import Surroundings
from fencepost.soak.client_processes import HANGING_AFTER_S, Crew
from fencepost.soak.figures import figures_of
from fencepost.soak.final_read import ClosingError, Examiner, wait_until_settled
from fencepost.soak.machines import Machines
from fencepost.soak.nemesis import Nemesis
from fencepost.soak.pieces import Pieces, begin_piece
from fencepost.soak.plan import Plan
from fencepost.soak.report import SoakReport
from fencepost.soak.trial_services import TrialError

TICK_S = 0.02
PROGRESS_INTERVAL_S = 5.0
FIRST_COMMITS_TIMEOUT_S = 60.0
LONGEST_EXTENSION_S = 180.0  # of a short soak, until all kinds of faults took place and a transaction was aborted
QUIET_TIMEOUT_S = 90.0  # after the last fault; every client must have committed again by then
STOP_TIMEOUT_S = 15.0
CREATE_TIMEOUT_S = 20.0
RESTART_TIMEOUT_S = 60.0
LONGEST_OUTAGE_S = 60.0  # of a store that several machines share
OUTAGE_SHARE = 0.1  # of the whole time: an outage is no longer
ANOMALIES_SHOWN = 5  # of each kind
FAILURES_SHOWN = 5
WRONG_EVENTS = (
    b"log_damaged",
    b"partition_lost",
    b"log_cut_before_valid_batches",
    b"event_loop_error",
    b"background_work_failed",
    b"partition_directory_missing",
    b"partition_admission_failed",
    b"created_directories_not_recorded",
)
WRONG_EVENTS_OF_MACHINES = (
    b"partition_went_offline",  # no disk is full there
    b"database_went_back",
    b"flush_conflicts",
    b"segment_not_brought",
)
UNREADABLE_FOR_NOW = re.compile(rb"cannot (get|get a part of|list) s3://")
LOST = b"records are lost"


class Soak:
    """directory: gets history.jsonl, nemesis.log, broker.log, data/, clients/ (of several machines: broker-1.log and so
    on, and their stores). java_class_path: None without Java. earlier: the pieces of this soak before this one."""

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        *,
        minutes: float,
        fault_interval_s: float,
        java_class_path: str | None,
        console: Console,
        database_urls: Sequence[str] = (),
        earlier: Pieces | None = None,
    ) -> None:
        self.report = SoakReport(
            seed=plan.seed,
            minutes=minutes,
            directory=str(directory),
            process_count=plan.process_count,
            machine_count=plan.machine_count,
        )
        self._plan = plan
        self._minutes = minutes
        self._console = console
        self._began_at_s = time.monotonic()
        self._log = (directory / "nemesis.log").open("a", buffering=1)
        self._directory = directory
        self._history_path = directory / "history.jsonl"
        self._pieces = earlier or Pieces.none_yet(plan)
        if earlier is not None:
            begin_piece(directory, earlier)
        self._history = HistoryWriter.open(self._history_path)
        logs_directory = directory / "clients"
        logs_directory.mkdir(exist_ok=True)
        self._broker = (
            Machines(directory, plan.broker_settings, count=plan.machine_count)
            if plan.machine_count
            else Broker(
                directory / "data", directory / "broker.log", plan.broker_settings, process_count=plan.process_count
            )
        )
        self._surroundings = Surroundings(
            plan, self._broker.bootstrap_servers, self._history_path, logs_directory, java_class_path, database_urls
        )
        self._crew = Crew(self._surroundings, self._pieces.lives)
        self._nemesis = Nemesis(
            self._broker,
            self._crew,
            random.Random(plan.seed + self._pieces.count),
            interval_s=fault_interval_s,
            longest_outage_s=min(LONGEST_OUTAGE_S, minutes * 60 * OUTAGE_SHARE) if plan.machine_count else 0.0,
            say=self._say,
        )
        self._nemesis.counts.update(self._pieces.faults)
        self._nemesis.fenced_zombies_count = self._pieces.fenced_zombies
        self._crew.ends.update(self._pieces.sessions)
        self._progress_at_s = 0.0
        self._history_bytes = 0

    def run(self) -> SoakReport:
        """Run the soak. No process is left, even after an exception; all files are kept."""
        try:
            self._start()
            self._work()
            self._close()
        except (BrokerDiedError, ClosingError, TrialError) as error:
            self.report.findings.append(str(error))
        finally:
            self._nemesis.stop()
            self._crew.kill_all()
            self._broker.close()
            self._end()
        self._sum_up()
        self._check()
        self._end_piece()
        self._log.close()
        return self.report

    def _end(self) -> None:
        """End further processes that serve the clients."""

    def _start(self) -> None:
        self._broker.spawn()
        self._wait_for_broker()
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
        if self._pieces.count:
            return
        wanted = [NewTopic(topic, count, 1) for topic, count in self._plan.topics().items()]
        for created in admin.create_topics(wanted).values():
            created.result(CREATE_TIMEOUT_S)

    def _work(self) -> None:
        """Run faults for the given time, then wait until every client has committed again."""
        self._began_at_s = began_at_s = time.monotonic()
        # Faults begin when all clients have committed, but at the latest at this time.
        self._look_until(lambda: not self._crew.idle_since(began_at_s), FIRST_COMMITS_TIMEOUT_S, "starting")
        never = self._crew.idle_since(began_at_s)
        if never:
            self.report.findings.append(f"never committed, before any fault: {', '.join(slot.name for slot in never)}")
            return
        end_at_s = time.monotonic() + self._minutes * 60
        while time.monotonic() < end_at_s or (
            not self._has_done_enough() and time.monotonic() < end_at_s + LONGEST_EXTENSION_S
        ):
            self._tick(may_begin=True, doing="faults")
        while self._nemesis.is_busy:
            self._tick(may_begin=False, doing="the last faults end")
        quiet_since_s = time.monotonic()
        self._say("no more faults")
        self._look_until(lambda: not self._crew.idle_since(quiet_since_s), QUIET_TIMEOUT_S, "quiet")
        self.report.findings += [
            f"{slot.name} has committed nothing in {time.monotonic() - quiet_since_s:.0f} s after the last fault"
            for slot in self._crew.idle_since(quiet_since_s)
        ]

    def _has_done_enough(self) -> bool:
        return self._nemesis.has_done_enough and self._crew.total("aborted") > 0

    def _close(self) -> None:
        self._say("clients end")
        self._crew.stop(STOP_TIMEOUT_S)
        bootstrap_servers = self._broker.bootstrap_servers
        self.report.findings += [f"left open: {one}" for one in wait_until_settled(bootstrap_servers)]
        examiner = Examiner(bootstrap_servers, self._plan.partitions())
        self.report.findings += examiner.unstable_partitions()
        if isinstance(self._broker, Machines):
            self.report.holdings.append(self._broker.holdings().as_object())
        self._say("final read")
        self._history_bytes = self._history_path.stat().st_size
        client = self._history.client("final-read", isolation_level="read_committed")
        visible = examiner.record_everything(client)
        examiner.record_offsets(client, self._plan.kinds)
        everything = examiner.content("read_uncommitted")
        self.report.visible_records = visible.records_count
        self.report.aborted_records = everything.records_count - visible.records_count
        if self.report.aborted_records <= 0:
            self.report.findings.append("read_uncommitted shows no aborted records: nothing was proved about them")
        self._say("one more crash")
        self._broker.kill()
        self._broker.spawn()
        self._wait_for_broker()
        if examiner.content("read_committed") != visible:
            self.report.findings.append("after one more kill -9, read_committed shows other records than before")
        if examiner.content("read_uncommitted") != everything:
            self.report.findings.append("after one more kill -9, read_uncommitted shows other records than before")
        self.report.findings += [f"after one more kill -9: {one}" for one in examiner.unstable_partitions()]
        self.report.findings += self._broker.problems()

    def _look_until(self, condition: Callable[[], bool], timeout_s: float, doing: str) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition() and time.monotonic() < deadline_s:
            self._tick(may_begin=False, doing=doing)

    def _tick(self, *, may_begin: bool, doing: str) -> None:
        self._nemesis.act(may_begin=may_begin)
        self._crew.look(watch_hanging=not self._is_disturbed())
        if time.monotonic() - self._progress_at_s > PROGRESS_INTERVAL_S:
            self._progress_at_s = time.monotonic()
            self._show_progress(doing)
        time.sleep(TICK_S)

    def _is_disturbed(self) -> bool:
        """Whether nothing can be written, or could a while before: then a client that waits does not hang."""
        return isinstance(self._broker, Machines) and self._broker.had_outage_since(time.monotonic() - HANGING_AFTER_S)

    def _show_progress(self, doing: str) -> None:
        faults = sum(self._nemesis.counts.values())
        totals = {name: self._crew.total(name) for name in ("committed", "aborted", "sent", "read")}
        self._console.print(
            f"{time.monotonic() - self._began_at_s:7.1f} s  {doing}: "
            f"{totals['committed']:,} committed, {totals['aborted']:,} aborted, "
            f"{totals['sent']:,} records sent, {totals['read']:,} read, {faults} faults, "
            f"{self._nemesis.fenced_zombies_count} zombies fenced, {len(self._nemesis.findings)} findings",
            highlight=False,
            soft_wrap=True,
        )

    def _wait_for_broker(self) -> None:
        deadline_s = time.monotonic() + RESTART_TIMEOUT_S
        while not self._broker.is_ready:
            if time.monotonic() > deadline_s:
                raise BrokerDiedError(f"the broker was not ready {RESTART_TIMEOUT_S:.0f} s after its start")
            time.sleep(TICK_S)

    def _sum_up(self) -> None:
        report, crew, nemesis = self.report, self._crew, self._nemesis
        report.duration_s = self._pieces.duration_s + time.monotonic() - self._began_at_s
        report.pieces_count = self._pieces.count + 1
        report.minutes += self._pieces.minutes
        report.holdings[:0] = self._pieces.holdings
        report.findings[:0] = self._pieces.findings
        self._count()
        report.faults = dict(nemesis.counts)
        report.fenced_zombies = nemesis.fenced_zombies_count
        report.sessions = dict(crew.ends)
        recoveries_s = [round(recovery_s, 3) for recovery_s in self._broker.recoveries_s]
        report.recoveries_s = [*self._pieces.recoveries_s, *recoveries_s]
        report.findings += nemesis.findings
        for path in self._broker.log_paths:
            log = path.read_bytes() if path.exists() else b""
            report.partitions_offline += log.count(b"partition_went_offline")
            if b"Traceback" in log:
                report.findings.append(f"the broker wrote a traceback; see {path}")
            lines = [line for line in log.splitlines() if not is_expected(line)]
            report.findings += [
                f"the broker reported {event.decode()}; see {path}"
                for event in (*WRONG_EVENTS, *(WRONG_EVENTS_OF_MACHINES if self._plan.machine_count else ()))
                if any(event in line for line in lines)
            ]
        if crew.hung:
            report.notes.append(
                f"clients that hung and were killed (their threads are in clients/): {', '.join(crew.hung)}"
            )
        report.notes += crew.failures[:FAILURES_SHOWN]
        if len(crew.failures) > FAILURES_SHOWN:
            report.notes.append(f"… and {len(crew.failures) - FAILURES_SHOWN} more")
        report.findings += [
            f"no {kind} client committed anything" for kind, count in report.committed.items() if not count
        ]
        report.findings = list(dict.fromkeys(report.findings))  # logs have those of the pieces before, too

    def _end_piece(self) -> None:
        """Leave the state for the next piece; a piece that did not come to its final read leaves none."""
        if not self._history_bytes or not isinstance(self._broker, Machines):
            return
        report, pieces = self.report, self._pieces
        pieces.count, pieces.minutes, pieces.duration_s = report.pieces_count, report.minutes, report.duration_s
        pieces.history_bytes = self._history_bytes
        pieces.lives = {slot.name: post.lives for slot, post in self._crew.posts.items()}
        pieces.faults, pieces.fenced_zombies, pieces.sessions = report.faults, report.fenced_zombies, report.sessions
        pieces.recoveries_s, pieces.findings, pieces.holdings = report.recoveries_s, report.findings, report.holdings
        pieces.save(self._directory)

    def _count(self) -> None:
        """Count the work of the clients."""
        report, figures = self.report, figures_of(self._history_path)
        report.operations, report.records_sent, report.records_read = figures.operations, figures.sent, figures.read
        report.committed = {
            kind: sum(count for client, count in figures.committed.items() if client.startswith(f"{kind}-"))
            for kind in self._plan.kinds
        }
        report.aborted, report.unknown = figures.aborted, figures.unknown

    def _check(self) -> None:
        """Run the checker as its own process, which frees its memory at its end."""
        self._say("checking the history")
        command = [
            *(sys.executable, "-m", "fencepost", "history", "check", str(self._history_path)),
            *("--json", "--limit", str(ANOMALIES_SHOWN)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            self.report.findings.append(f"the history could not be checked: {done.stderr.strip()}")
            return
        verdict = json.loads(done.stdout)
        self.report.anomalies = verdict["anomaly_counts"]
        for anomaly in verdict["anomalies"]:
            proofs = [f"    line {proof['line']}: {proof['statement']}" for proof in anomaly["proofs"]]
            self.report.anomaly_texts.append("\n".join([f"{anomaly['anomaly']}: {anomaly['summary']}", *proofs]))

    def _say(self, text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')} {time.monotonic() - self._began_at_s:8.2f} s  {text}"
        self._log.write(line + "\n")


def is_expected(line: bytes) -> bool:
    """Whether a line of a broker's log only says that the object store is away or busy.

    The broker tries again, and the final read needs every partition.
    """
    return b"partition_admission_failed" in line and UNREADABLE_FOR_NOW.search(line) is not None and LOST not in line
