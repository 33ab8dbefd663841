"""The first page: problems, and sizes of the cluster; and the search over all names."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost.client.cluster import Cluster
from fencepost.console.reading.groups import GroupList, groups_of
from fencepost.console.reading.lag_table import LONGEST_WAIT_S, GroupRow, LagTable, lag_table_of
from fencepost.console.reading.sampling import history_of
from fencepost.console.reading.sharing import Answer, answered, part_of
from fencepost.console.reading.snapshot import snapshot_of, view_of
from fencepost.console.reading.transactions import TransactionList, describe_transactions, transactions_of
from fencepost.console.web.plots import plot
from fencepost.console.web.visit import Page, Visit
from fencepost.diagnosis.stuck import ONGOING, OPEN_STATES, CoordinatorView
from fencepost.diagnosis.words import counted

MOST_DESCRIBED: Final = 2_000
MOST_FOUND: Final = 50
SHOWN = 8
BEHIND_OFFSETS = 1_000
"""A group that could read this many offsets now is shown as behind."""


@dataclass(frozen=True)
class OpenTransactionRow:
    """An open transaction with its age."""

    view: CoordinatorView
    age_ms: int

    @property
    def has_timeout(self) -> bool:
        return not self.view.is_two_phase

    @property
    def is_overdue(self) -> bool:
        return self.has_timeout and self.view.state == ONGOING and self.age_ms > self.view.timeout_ms


@dataclass(frozen=True)
class OpenTransactions:
    """The open transactions, oldest first. missing: why there may be more of them, as sentences."""

    rows: Sequence[OpenTransactionRow]
    missing: Sequence[str]


async def overview(visit: Visit) -> Page:
    reads = visit.reads
    history = history_of(reads)
    snapshot, opened, table = await asyncio.gather(
        snapshot_of(reads), _open_transactions(visit), lag_table_of(reads), return_exceptions=True
    )
    cluster = answered(snapshot)
    missing: list[str] = [*cluster.value.missing]
    transactions = part_of(opened, OpenTransactions((), ()), "Open transactions", missing)
    groups = part_of(table, LagTable((), (), {}, {}), "Groups", missing)
    topics, partitions = cluster.value.topics, cluster.value.partitions
    rows = groups.value.rows
    behind = heapq.nlargest(SHOWN, (row for row in rows if _is_behind(row)), key=lambda row: row.lag.deliverable or 0)
    blocked = heapq.nlargest(SHOWN, (row for row in rows if row.lag.blocked), key=lambda row: row.lag.blocked or 0)
    behind_count = sum(map(_is_behind, rows))
    overdue_count = sum(row.is_overdue for row in transactions.value.rows)
    held, offline = cluster.value.held, cluster.value.offline
    data = {
        "cluster_id": cluster.value.view.cluster_id,
        "brokers": list(cluster.value.view.nodes.values()),
        "controller": cluster.value.view.controller,
        "topics_count": sum(not topic.is_internal for topic in topics),
        "partitions_count": len(partitions),
        "records": sum(topic.records for topic in topics if not topic.is_internal),
        "bytes": sum(topic.size_bytes or 0 for topic in topics),
        "groups_count": None if isinstance(table, BaseException) else len(rows),
        "held": held[:SHOWN],
        "held_count": len(held),
        "offline": offline[:SHOWN],
        "offline_count": len(offline),
        "open_transactions": transactions.value.rows[:SHOWN],
        "open_count": None if isinstance(opened, BaseException) else len(transactions.value.rows),
        "overdue_count": overdue_count,
        "waiting": behind + [row for row in blocked if row not in behind],
        "waiting_count": sum(_is_behind(row) or bool(row.lag.blocked) for row in rows),
        "errors": [*missing, *transactions.value.missing, *groups.value.missing],
        "health": health(len(offline), len(held), overdue_count, behind_count),
        "is_empty": not any(not topic.is_internal for topic in topics),
        "rates": plot(history.rates()),
        "lags": plot(history.lags()),
    }
    age_s = max(cluster.age_s, transactions.age_s, groups.age_s)
    return Page("overview.html", "Overview", data, menu="overview", refreshes=True, age_s=age_s)


def _is_behind(row: GroupRow) -> bool:
    return (row.lag.deliverable or 0) >= BEHIND_OFFSETS


def health(offline: int, held: int, overdue: int, behind: int) -> list[str]:
    """Return the problems, in words, the worst first; empty without any."""
    said = []
    if offline:
        said.append(f"{counted(offline, 'partition')} {_is(offline)} offline.")
    if overdue:
        said.append(f"{counted(overdue, 'transaction')} {_is(overdue)} past the time-out.")
    if held:
        said.append(f"Readers of {counted(held, 'partition')} wait for open transactions.")
    if behind:
        said.append(f"{counted(behind, 'group')} {'falls' if behind == 1 else 'fall'} behind.")
    return said


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


async def _open_transactions(visit: Visit) -> Answer[OpenTransactions]:
    reads = visit.reads

    async def read(cluster: Cluster) -> OpenTransactions:
        found = (await transactions_of(reads, OPEN_STATES, LONGEST_WAIT_S)).value
        views = await describe_transactions(cluster, found.listed[:MOST_DESCRIBED])
        now_ms = int(time.time() * 1000)
        rows = [
            OpenTransactionRow(view, max(0, now_ms - view.started_ms) if view.started_ms >= 0 else 0)
            for view in views.values()
            if view.state in OPEN_STATES
        ]
        missing = list(found.missing)
        if len(found.listed) > MOST_DESCRIBED:
            missing.append(f"Ages are shown of {MOST_DESCRIBED:,} of {len(found.listed):,} open transactions.")
        return OpenTransactions(sorted(rows, key=lambda row: -row.age_ms), missing)

    return await reads.ask("open transactions", read)


async def search(visit: Visit) -> Page:
    """Names that contain a text: topics, groups, transactional ids and producer ids."""
    wanted = visit.parameter("q").strip()
    lowered = wanted.lower()
    data: dict[str, object] = {"wanted": wanted, "topics": [], "groups": [], "transactions": [], "errors": []}
    data["counts"] = {"topics": 0, "groups": 0, "transactions": 0}
    if wanted:
        reads = visit.reads
        answers = await asyncio.gather(view_of(reads), groups_of(reads), transactions_of(reads), return_exceptions=True)
        missing: list[str] = []
        names = answered(answers[0]).value.topics
        groups = part_of(answers[1], GroupList(), "Groups", missing).value
        transactions = part_of(answers[2], TransactionList(), "Transactional ids", missing).value
        found: dict[str, list[Any]] = {
            "topics": [name for name in names if lowered in name.lower()],
            "groups": [one for one in groups.listed if lowered in one.group_id.lower()],
            "transactions": [
                one
                for one in transactions.listed
                if lowered in one.transactional_id.lower() or wanted == str(one.producer_id)
            ],
        }
        data |= {kind: rows[:MOST_FOUND] for kind, rows in found.items()}
        data["counts"] = {kind: len(rows) for kind, rows in found.items()}
        data["errors"] = [*missing, *groups.missing, *transactions.missing]
    return Page("search.html", f"Search: {wanted}" if wanted else "Search", data)
