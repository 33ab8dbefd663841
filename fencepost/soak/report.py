"""Output of a soak: a line every few seconds, and the report at the end."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.table import Table

MB: Final = 1_000_000
FAULT_TITLES = {
    "broker_kills": "broker: kill -9",
    "broker_restarts": "broker: SIGTERM and restart",
    "broker_freezes": "broker: SIGSTOP",
    "disk_full": "broker: disk full",
    "client_kills": "client: kill -9",
    "client_freezes": "client: SIGSTOP",
    "client_restarts": "client: SIGTERM and restart",
    "zombies": "zombie: SIGSTOP, successor, SIGCONT",
}
BROKER_FAULTS = ("broker_kills", "broker_restarts", "broker_freezes", "disk_full")
PROCESS_FAULT_TITLES = {
    "process_kills": "one process: kill -9",
    "process_restarts": "one process: SIGTERM",
    "process_freezes": "one process: SIGSTOP, shorter than it may hang",
    "process_hangs": "one process: SIGSTOP, until its parent kills it",
    "drains": "one process: drained and resumed",
    "moves": "partitions moved by an operator",
}
MACHINE_FAULT_TITLES = {
    "machine_kills": "one broker: kill -9",
    "cluster_kills": "all brokers: kill -9",
    "machine_restarts": "one broker: SIGTERM",
    "machine_interrupts": "one broker: SIGINT",
    "machine_freezes": "one broker: SIGSTOP, shorter than its lease",
    "machine_zombies": "one broker: SIGSTOP, beyond its lease",
    "drains": "one broker: drained and resumed",
    "moves": "partitions moved by an operator",
    "database_restarts": "PostgreSQL: stopped and started",
    "database_crashes": "PostgreSQL: stopped at once, and recovered",
    "database_freezes": "PostgreSQL: SIGSTOP",
    "standby_freezes": "synchronous standby: SIGSTOP",
    "database_promotions": "PostgreSQL: kill -9, and its standby promoted",
    "database_zombies": "PostgreSQL: SIGSTOP, its standby promoted, SIGCONT",
    "database_twins": "PostgreSQL: its standby promoted beside it",
    "connection_cuts": "PostgreSQL: half of the connections cut",
    "objects_restarts": "object store: kill -9",
    "objects_freezes": "object store: SIGSTOP",
    "objects_troubles": "object store: SlowDown, no answers",
}
DATABASE_FAULT_TITLES = {
    "postgres_kills": "database: kill -9",
    "postgres_process_kills": "database, one process: kill -9",
    "postgres_promotions": "database lost, its synchronous standby promoted",
    "standby_freezes": "synchronous standby: SIGSTOP",
    "postgres_tables_full": "database: disk full for a table",
    "postgres_wal_full": "database: disk full for the write-ahead log",
    "locks": "locks held for longer than a time-out",
    "commit_cuts_before": "connections cut before COMMIT",
    "commit_cuts_after": "connections cut after COMMIT, before its answer",
    "commit_cuts_half": "connections cut within the answer to COMMIT",
    "pooler_kills": "PgBouncer: kill -9",
}


@dataclass
class Doubts:
    """Transfers whose database has committed, and whose records had not yet. Times in s.

    left: those that another session has committed.
    """

    count: int = 0
    median_s: float = 0.0
    longest_s: float = 0.0
    left: int = 0
    median_of_left_s: float = 0.0

    @classmethod
    def of(cls, all_s: Sequence[float], left_s: Sequence[float]) -> Doubts:
        """all_s: times of all of them, those that were left included."""
        median_s = statistics.median(all_s) if all_s else 0.0
        median_of_left_s = statistics.median(left_s) if left_s else 0.0
        return cls(len(all_s), round(median_s, 4), round(max(all_s, default=0.0), 3), len(left_s), median_of_left_s)

    def __str__(self) -> str:
        of_left = f"; {self.left:,} left to another session, median {self.median_of_left_s:.2f} s" if self.left else ""
        return f"median {self.median_s * 1000:.1f} ms, longest {self.longest_s:.1f} s{of_left}"


@dataclass
class SoakReport:
    """Results of one soak. Counts of records and transactions come from the clients' histories.

    findings: failures beside the anomalies of the checker; any of them fails the soak.
    notes:    other observations, which are no fault of the broker.
    """

    seed: int
    minutes: float
    directory: str
    process_count: int = 1  # of the broker
    machine_count: int = 0  # of a cluster of machines
    pieces_count: int = 1  # of the soak; all figures are of all of them together
    duration_s: float = 0.0
    operations: int = 0
    records_sent: int = 0
    records_read: int = 0
    committed: dict[str, int] = field(default_factory=dict)  # by kind of client
    aborted: int = 0
    unknown: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    fenced_zombies: int = 0
    sessions: dict[str, int] = field(default_factory=dict)  # reasons of ends without a signal
    recoveries_s: list[float] = field(default_factory=list)
    holdings: list[dict[str, Any]] = field(default_factory=list)  # at the end of each piece
    partitions_offline: int = 0
    visible_records: int = 0
    aborted_records: int = 0
    anomalies: dict[str, int] = field(default_factory=dict)
    anomaly_texts: list[str] = field(default_factory=list)
    doubts: Doubts | None = None  # of services that commit over a database and a topic
    raised: dict[str, int] = field(default_factory=dict)  # exceptions that they got, by their names
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.findings and not self.anomalies

    def as_object(self) -> dict[str, object]:
        """Format the report for --json."""
        return {"good": self.is_good, **asdict(self)}

    def _titles(self) -> dict[str, str]:
        """The titles of the faults."""
        return {**self._titles_of_brokers(), **(DATABASE_FAULT_TITLES if self.doubts else {})}

    def _titles_of_brokers(self) -> dict[str, str]:
        if self.machine_count:
            of_clients = {fault: title for fault, title in FAULT_TITLES.items() if fault not in BROKER_FAULTS}
            return {**MACHINE_FAULT_TITLES, **of_clients}
        return FAULT_TITLES if self.process_count == 1 else {**FAULT_TITLES, **PROCESS_FAULT_TITLES}

    def _pieces_text(self) -> str:
        return f"{self.pieces_count:,}; {self.duration_s / 60:.1f} minutes"

    def _show_holdings(self, console: Console) -> None:
        """Print the sizes of the cluster at the end of each piece, if they were counted."""
        if not self.holdings:
            return
        table = Table(
            *("piece", "objects", "MB of objects", "rows", "MB local", "MB resident"),
            title="kept at the end of each piece",
            title_justify="left",
        )
        for number, one in enumerate(self.holdings, 1):
            rows = ", ".join(f"{table_name} {count:,}" for table_name, count in one["rows"].items() if count)
            resident = " ".join(f"{size_bytes / MB:.0f}" for size_bytes in one["resident_bytes"] if size_bytes >= 0)
            sizes = f"{one['object_bytes'] / MB:.1f}", rows, f"{one['local_bytes'] / MB:.1f}", resident
            table.add_row(str(number), f"{one['objects']:,}", *sizes)
        console.print(table)

    def show(self, console: Console) -> None:
        """Print the report as a table for people."""
        in_pieces = f" in {self.pieces_count} pieces" if self.pieces_count > 1 else ""
        title = f"Soak of {self.minutes:g} minutes{in_pieces}, seed {self.seed}"
        table = Table("", "", show_header=False, title=title, title_justify="left")
        if self.pieces_count > 1:
            table.add_row("pieces, and their time with start and checks", self._pieces_text())
        committed = sum(self.committed.values())
        if self.doubts is None:
            table.add_row("operations in the history", f"{self.operations:,}")
            table.add_row("records sent / read", f"{self.records_sent:,} / {self.records_read:,}")
        by_kind = ", ".join(f"{kind} {count:,}" for kind, count in self.committed.items())
        table.add_row("transactions committed", f"{committed:,} ({by_kind})")
        table.add_row("transactions aborted", f"{self.aborted:,}")
        if self.doubts is None:
            table.add_row("transactions with unknown outcome", f"{self.unknown:,}")
        table.add_row("records visible / aborted, at the end", f"{self.visible_records:,} / {self.aborted_records:,}")
        if self.doubts:
            table.add_row("time in doubt", str(self.doubts))
        table.add_section()
        titles = self._titles()
        for fault, title in titles.items():
            table.add_row(title, f"{self.faults.get(fault, 0):,}")
        table.add_row("zombies fenced", f"{self.fenced_zombies:,}")
        for fault, count in self.faults.items():
            if fault not in titles:
                table.add_row(fault.replace("_", " "), f"{count:,}")
        table.add_row("partitions taken offline by a full disk", f"{self.partitions_offline:,}")
        if self.recoveries_s:
            table.add_row(
                "broker recoveries",
                f"{len(self.recoveries_s):,}; median {statistics.median(self.recoveries_s):.2f} s, "
                f"longest {max(self.recoveries_s):.2f} s",
            )
        for name, count in sorted(self.raised.items()):
            table.add_row(f"services got: {name}", f"{count:,}")
        for end, count in sorted(self.sessions.items()):
            table.add_row(f"sessions that ended: {end.replace('_', ' ')}", f"{count:,}")
        table.add_section()
        table.add_row("anomalies", f"{sum(self.anomalies.values()):,}")
        table.add_row("other findings", f"{len(self.findings):,}")
        console.print(table)
        self._show_holdings(console)
        for note in self.notes:
            console.print(f"note: {note}", highlight=False, soft_wrap=True, markup=False)
        for text in [*self.findings, *self.anomaly_texts]:
            console.print(f"WRONG: {text}", style="red", highlight=False, soft_wrap=True, markup=False)
        console.print(f"everything is in {self.directory}", highlight=False, soft_wrap=True, markup=False)
        if self.is_good:
            console.print("Nothing was lost, nothing seen twice or too early, and all got on.", style="bold green")
