"""Decided batches of Spark's sinks that have open transactions, as their driver has not committed them yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fencepost.check_back.decided import DEFAULT_GLOB, DecidedBatch, DecisionTopics, sink_of
from fencepost.check_back.ledgers import Ledgers
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError
from fencepost.console.in_doubt import token_of
from fencepost.diagnosis.stuck import CoordinatorView

MOST_SINKS = 200
"""Bound of the sinks whose decisions are read for a page, those with the oldest transactions first."""


class UnfinishedBatch(NamedTuple):
    """A decided batch. decided_ms: time of its decision. open: its open transactions."""

    topic: str
    batch: DecidedBatch
    decided_ms: int
    open: tuple[CoordinatorView, ...]


async def read_unfinished(
    cluster: Cluster, views: Iterable[CoordinatorView]
) -> tuple[list[UnfinishedBatch], list[str]]:
    """Read the decisions about open transactions, the oldest first, and a sentence on each topic that was not read.

    Only in topics that are named after a sink: the console does not know which others the operator trusts.
    """
    by_sink: dict[str, dict[str, CoordinatorView]] = {}
    for view in sorted(views, key=lambda view: view.started_ms):
        sink = sink_of(view.transactional_id)
        if sink is not None:
            by_sink.setdefault(sink, {})[str(token_of(view))] = view
    topics = DecisionTopics([DEFAULT_GLOB])
    sinks = list(by_sink)[:MOST_SINKS]
    names = {name for sink in sinks for name in topics.own(sink)}
    if not names:
        return [], []
    ledgers = Ledgers(cluster, topics)
    try:
        await ledgers.read(names)
    except (ClusterError, OSError) as error:
        return [], [f"The decisions of Spark's sinks cannot be read: {error}."]
    found = []
    for topic, ledger in ledgers.found.items():
        for sink, batch in ledger.batches.items():
            tokens = by_sink.get(sink, {})
            open_views = tuple(tokens[token] for token in batch.tokens if token in tokens)
            if open_views:
                found.append(UnfinishedBatch(topic, batch, ledger.decided_ms[sink], open_views))
    missing = [f"{topic} was not read: {problem}." for topic, problem in sorted(ledgers.problems.items())]
    if len(by_sink) > MOST_SINKS:
        missing.append(f"Decisions were read of {MOST_SINKS} of {len(by_sink)} sinks with open transactions.")
    return sorted(found, key=lambda one: one.decided_ms), missing
