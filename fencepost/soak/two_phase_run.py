"""Run of a soak whose clients are services that commit over a database and a topic, while both get faults.

At the end each transfer is on both sides once, or on neither, and no transaction is open.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

from fencepost.soak.client_process import ClientProcess
from fencepost.soak.database_faults import DatabaseFaults
from fencepost.soak.final_read import Examiner, wait_until_settled
from fencepost.soak.nemesis import Least
from fencepost.soak.plan import ExitCode, Plan
from fencepost.soak.report import Doubts
from fencepost.soak.run import STOP_TIMEOUT_S, Soak
from fencepost.soak.service_database import ServiceDatabase
from fencepost.soak.two_phase_service import BALANCE, GROWING, LOCKS, ROLES, TABLES
from fencepost.two_phase import Coordinator, PostgresLog
from fencepost.two_phase.comparison import Comparison, Place

MOST_COMMITS: Final = 5_000_000
SHOWN: Final = 5  # of each kind of difference
LAST_SESSION_TIMEOUT_S: Final = 60.0
LAST_SESSION_TRIES: Final = 5
LOOK_S: Final = 0.1
LEAST_OF_DATABASE: Final[Least] = {
    ("postgres_kills", "postgres_process_kills"): 1,
    ("postgres_promotions",): 1,
    ("postgres_tables_full", "postgres_wal_full"): 1,
    ("locks",): 1,
    ("commit_cuts_before",): 1,
    ("commit_cuts_after",): 1,
    ("commit_cuts_half",): 1,
    ("client_", "zombies"): 1,
    ("broker_", "process_", "machine_"): 1,
}
ON_BOTH_SIDES: Final = "committed on both sides"  # in a NeedsRecovery
WITHOUT_POOLER: Final = (
    "PgBouncer is not installed, so no service goes through it (Debian and Ubuntu: apt-get install pgbouncer)"
)
ACCOUNTS: Final = """
SELECT accounts.*, count(commit_id), coalesce(max(number), 0), coalesce(sum(transfers.amount), 0)::bigint
FROM accounts LEFT JOIN transfers ON service = name GROUP BY name
"""


class Found(NamedTuple):
    """A record of a transfer."""

    transfer: str
    place: Place


class TwoPhaseSoak(Soak):
    """As `Soak`, whose history.jsonl is the log of the services; the directory has the logs of the database, too."""

    def __init__(self, plan: Plan, directory: Path, *, fault_interval_s: float, **options: Any) -> None:
        self._database = database = ServiceDatabase(directory, list(ROLES))
        ways = [database.url, *([database.pooled_url] if database.has_pooler else [])]
        super().__init__(
            plan,
            directory,
            fault_interval_s=fault_interval_s,
            database_urls=[way(role) for way, role in product(ways, ROLES)],
            **options,
        )
        faults = DatabaseFaults(
            database,
            random.Random(f"{plan.seed} database"),
            growing=lambda: self._growing,
            locks=LOCKS,
            note=self._nemesis.note,
        )
        self._nemesis.add(faults.all(), LEAST_OF_DATABASE)
        self._growing = ""
        if not database.has_pooler:
            self.report.notes.append(WITHOUT_POOLER)

    def _start(self) -> None:
        super()._start()
        self._database.start()
        with psycopg.connect(self._database.own_url) as connection:
            PostgresLog().create(connection)
            for role, settings in ROLES.items():
                connection.execute(f"CREATE ROLE {role} LOGIN".encode())
                for name, value in settings.items():
                    connection.execute(f"ALTER ROLE {role} SET {name} = {value}".encode())
            connection.execute(TABLES.encode())
            connection.execute(
                f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {', '.join(ROLES)}".encode()
            )
            for slot in self._plan.slots():
                connection.execute("INSERT INTO accounts VALUES (%s, %s, 0)", (slot.name, BALANCE))
            ((self._growing,),) = connection.execute("SELECT pg_relation_filepath(%s)", (GROWING,)).fetchall()

    def _is_disturbed(self) -> bool:
        return self._database.is_held or super()._is_disturbed()

    def _close(self) -> None:
        self._say("services end")
        self._database.proxy.forget()
        self._crew.stop(STOP_TIMEOUT_S)
        self._say("each service starts once more")
        for slot in self._plan.slots():
            self._start_last(slot)
        bootstrap_servers = self._broker.bootstrap_servers
        self.report.findings += [f"left open: {one}" for one in wait_until_settled(bootstrap_servers)]
        with Coordinator(bootstrap_servers) as coordinator:
            self.report.findings += [f"in doubt: {one.token}" for one in coordinator.in_doubt()]
        self._say("both sides are compared")
        records: dict[str, Found] = {}
        doubled: list[str] = []

        def seen(partition: tuple[str, int], offset: int, value: str) -> None:
            commit_id, _, transfer = value.partition(" ")
            place = Place(*partition, offset)
            if commit_id in records:
                doubled.append(f"{value} at {place} and at {records[commit_id].place}")
            records[commit_id] = Found(transfer, place)

        examiner = Examiner(bootstrap_servers, self._plan.partitions())
        self.report.visible_records = examiner.content("read_committed", seen).records_count
        self.report.aborted_records = examiner.content("read_uncommitted").records_count - self.report.visible_records
        self.report.findings += _first("a record is there twice", doubled)
        with psycopg.connect(self._database.own_url) as connection:
            self._compare(connection, records)
        self.report.findings += self._broker.problems()

    def _start_last(self, slot: Any) -> None:
        """Let a service start a session, which finishes the transaction of the one before."""
        for _ in range(LAST_SESSION_TRIES):
            self._crew.posts[slot].lives += 1
            process = ClientProcess(self._surroundings, slot, self._crew.posts[slot].lives, is_last=True)
            deadline_s = time.monotonic() + LAST_SESSION_TIMEOUT_S
            while process.exit_code is None and time.monotonic() < deadline_s:
                time.sleep(LOOK_S)
            process.kill()
            if process.exit_code == ExitCode.STOPPED:
                return
        self.report.findings.append(
            f"{slot.name} cannot start a last session: {process.reason}; see {process.log_path}"
        )

    def _compare(self, connection: psycopg.Connection[Any], records: Mapping[str, Found]) -> None:
        """Rows equal records."""
        rows = {
            commit_id: f"{service} {number} {amount}"
            for commit_id, service, number, amount in connection.execute("SELECT * FROM transfers")
        }
        self.report.findings += differences(rows, records)
        acknowledged: Counter[str] = Counter()
        for one in self._told:
            if "number" in one:
                acknowledged[one["service"]] = max(acknowledged[one["service"]], one["number"])
        for name, balance, transfers, count, highest, moved in connection.execute(ACCOUNTS):
            if not transfers == count == highest or balance + moved != BALANCE:
                self.report.findings.append(
                    f"the account of {name} says {transfers} transfers, of {count} up to {highest} that are there"
                )
            if acknowledged[name] > highest:
                self.report.findings.append(
                    f"{name} has lost transfers: {acknowledged[name]} was acknowledged, the last one is {highest}"
                )
        for (token,) in connection.execute("SELECT token FROM fencepost_prepared WHERE token IS NOT NULL"):
            self.report.findings.append(f"a token is left: {token}")

    @property
    def _told(self) -> list[dict[str, Any]]:
        """The lines of the services' log."""
        return list(_lines(self._history_path))

    def _end(self) -> None:
        self._database.close()

    def _count(self) -> None:
        report, told = self.report, self._told
        made = Counter(str(one["service"]) for one in told if "number" in one)
        report.committed = {
            kind: sum(count for name, count in made.items() if name.startswith(f"{kind}-")) for kind in self._plan.kinds
        }
        report.raised = dict(Counter(str(one["raised"]) for one in told if "raised" in one))
        report.aborted = sum(report.raised.values())
        report.doubts = Doubts.of(*times_in_doubt(told))
        report.findings += self._crew.failures

    def _check(self) -> None:
        """There is no history: rows and records were compared."""


def differences(rows: Mapping[str, str], records: Mapping[str, Found]) -> list[str]:
    """Findings: rows and records of which the other side has none, or another one. Both by the ids of their commits."""
    compared = Comparison(0, sys.maxsize, MOST_COMMITS)
    compared.add_rows(rows)
    for commit_id, found in records.items():
        compared.add_record(commit_id, found.place)
    without_rows = [f"{one} at {place}" for one, place in compared.records_without_rows()]
    unequal = [one for one, row in rows.items() if one in records and records[one].transfer != row]
    without_id = [f"{compared.without_id} rows and records"] if compared.without_id else []
    return [
        *_first("a row without its record", compared.rows_without_records()),
        *_first("a record without its row", without_rows),
        *_first("a record that differs from its row", unequal),
        *_first("no id of a commit", without_id),
    ]


def times_in_doubt(told: Iterable[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """The times in doubt, in s, by the services' log: all of them, and those of transfers left to another session.

    A session that has ended with both sides committed has left nothing in doubt, though the next one finds its token.
    """
    all_s, left_s = [], []
    on_both_sides: set[str] = set()
    for one in told:
        service = str(one["service"])
        if "raised" in one and ON_BOTH_SIDES in one["text"]:
            on_both_sides.add(service)
        if "doubt_s" not in one:
            continue
        if "was_left" not in one:
            all_s.append(float(one["doubt_s"]))
        elif service not in on_both_sides:
            all_s.append(float(one["doubt_s"]))
            left_s.append(float(one["doubt_s"]))
        on_both_sides.discard(service)
    return all_s, left_s


def _first(kind: str, found: Iterable[object]) -> list[str]:
    """A finding for each of the first differences, and one for the number of the others."""
    texts = [f"{kind}: {one}" for one in found]
    more = [f"{kind}: {len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
    return texts[:SHOWN] + more


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    with path.open("rb") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue  # the unfinished line of a service that was killed
