"""The first page: problems, and sizes of the cluster; and the search over all names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fencepost.client.consuming import Place
from fencepost.client.errors import ClusterError
from fencepost.console.reading.groups import GroupList, lags_of, list_groups, read_committed
from fencepost.console.reading.topics import PartitionState, TopicState, read_topics
from fencepost.console.reading.transactions import describe_transactions, list_transactions
from fencepost.console.web.drawing import curve
from fencepost.console.web.visit import Page, Visit
from fencepost.diagnosis.lag import Lag, total
from fencepost.diagnosis.stuck import ONGOING, OPEN_STATES, CoordinatorView
from fencepost.diagnosis.words import counted

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
class GroupRow:
    """A group with its lag over all partitions."""

    group_id: str
    kind: str
    state: str
    lag: Lag


def by_place(topics: Sequence[TopicState]) -> dict[Place, PartitionState]:
    """All partitions by topic and number."""
    return {(topic.name, one.index): one for topic in topics for one in topic.partitions}


async def group_rows(visit: Visit, groups: GroupList, partitions: Mapping[Place, PartitionState]) -> list[GroupRow]:
    """All groups with their lag."""
    committed = await read_committed(visit.cluster, groups.listed)
    lags = {group_id: lags_of(offsets, partitions) for group_id, offsets in committed.items()}
    every = [(one, partitions[one.topic, one.partition]) for found in lags.values() for one in found if one.lag.end]
    await visit.session.readable_counts.fill(visit.cluster, every)
    return [
        GroupRow(group.group_id, group.kind, group.state, total(one.lag for one in lags.get(group.group_id, ())))
        for group in groups.listed
    ]


async def overview(visit: Visit) -> Page:
    view = await visit.cluster.view()
    topics, transactions, groups = await asyncio.gather(
        read_topics(visit.cluster, view), _open_transactions(visit), list_groups(visit.cluster)
    )
    partitions = by_place(topics)
    rows = await group_rows(visit, groups, partitions)
    held = sorted((one for one in partitions.values() if one.behind), key=lambda one: -one.behind)
    offline = [one for one in partitions.values() if one.error]
    behind = sorted(
        (row for row in rows if (row.lag.deliverable or 0) >= BEHIND_OFFSETS),
        key=lambda row: -(row.lag.deliverable or 0),
    )
    blocked = sorted((row for row in rows if row.lag.blocked), key=lambda row: -(row.lag.blocked or 0))
    overdue = [row for row in transactions if row.is_overdue]
    errors = list(groups.missing)
    data = {
        "cluster_id": view.cluster_id,
        "brokers": list(view.nodes.values()),
        "controller": view.controller,
        "topics_count": sum(not topic.is_internal for topic in topics),
        "partitions_count": len(partitions),
        "records": sum(topic.records for topic in topics if not topic.is_internal),
        "bytes": sum(topic.size_bytes or 0 for topic in topics),
        "groups_count": len(rows),
        "held": held[:SHOWN],
        "held_count": len(held),
        "offline": offline[:SHOWN],
        "offline_count": len(offline),
        "open_transactions": transactions[:SHOWN],
        "open_count": len(transactions),
        "overdue_count": len(overdue),
        "waiting": (behind + [row for row in blocked if row not in behind])[: 2 * SHOWN],
        "errors": errors,
        "health": health(len(offline), len(held), len(overdue), len(behind)),
        "is_empty": not any(not topic.is_internal for topic in topics),
        **_rates(visit, topics),
    }
    return Page("overview.html", "Overview", data, menu="overview", refreshes=True)


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


def _rates(visit: Visit, topics: Sequence[TopicState]) -> dict[str, object]:
    """Records per second as this session saw them; a negative one, after a topic was deleted, counts as none."""
    end = sum(one.high_watermark or 0 for topic in topics if not topic.is_internal for one in topic.partitions)
    samples = visit.session.samples
    now_s = time.monotonic()
    if not samples or now_s - samples[-1][0] >= 1:
        samples.append((now_s, end))
    rates = [
        max(0.0, (later - earlier) / (later_s - earlier_s))
        for (earlier_s, earlier), (later_s, later) in zip(samples, list(samples)[1:], strict=False)
    ]
    return {
        "rate": round(rates[-1], 1) if rates else None,
        "rate_curve": curve(rates),
        "rate_greatest": round(max(rates), 1) if rates else None,
        "rate_seconds": int(samples[-1][0] - samples[0][0]),
    }


async def _open_transactions(visit: Visit) -> list[OpenTransactionRow]:
    found = await list_transactions(visit.cluster, states=sorted(OPEN_STATES))
    views = await describe_transactions(visit.cluster, found.listed)
    now_ms = int(time.time() * 1000)
    rows = [
        OpenTransactionRow(view, max(0, now_ms - view.started_ms) if view.started_ms >= 0 else 0)
        for view in views.values()
        if view.state in OPEN_STATES
    ]
    return sorted(rows, key=lambda row: -row.age_ms)


async def search(visit: Visit) -> Page:
    """Names that contain a text: topics, groups, transactional ids and producer ids."""
    wanted = visit.parameter("q").strip()
    lowered = wanted.lower()
    data: dict[str, object] = {"wanted": wanted, "topics": [], "groups": [], "transactions": [], "errors": []}
    if wanted:
        view, groups, transactions = await asyncio.gather(
            visit.cluster.view(), list_groups(visit.cluster), list_transactions(visit.cluster), return_exceptions=True
        )
        for failure in (view, groups, transactions):
            if isinstance(failure, BaseException) and not isinstance(failure, ClusterError):
                raise failure
        if isinstance(view, BaseException):
            raise view
        data["topics"] = [name for name in view.topics if lowered in name.lower()][:50]
        if not isinstance(groups, BaseException):
            data["groups"] = [one for one in groups.listed if lowered in one.group_id.lower()][:50]
        if not isinstance(transactions, BaseException):
            data["transactions"] = [
                one
                for one in transactions.listed
                if lowered in one.transactional_id.lower() or wanted == str(one.producer_id)
            ][:50]
    return Page("search.html", f"Search: {wanted}" if wanted else "Search", data)
