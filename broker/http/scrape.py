"""One scrape: what several families need is collected once, in steps between which others run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.broker.group.shard import GroupSummary
from fencepost.broker.http.node_view import NodeView
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import LogTraffic
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.sliced_work import SlicedWork
from fencepost.broker.transaction.metadata import TransactionMetadata

STEP: Final = 100
"""Logs, groups or transactions that are looked at in one step."""


class CommittedOffset(NamedTuple):
    """What a group has committed of a partition that is led here."""

    group_id: str
    topic_partition: TopicPartition
    offset: int
    log: PartitionLog


class Scrape:
    """What is known so far, as of the moment at which each part is first asked for.

    notes: what was left out, and why.
    """

    def __init__(self, view: NodeView) -> None:
        self.view = view
        self.now_ms = view.services.clock.now_ms()
        self.logs = list(view.logs())
        self.most_partitions = view.settings.fencepost_metrics_max_partitions
        self.notes: list[str] = []
        self.has_too_many_partitions = len(self.logs) > self.most_partitions
        if self.has_too_many_partitions:
            self.notes.append(
                f"left out: families for each partition, as there are {len(self.logs)} partitions; "
                f"fencepost.metrics.max.partitions is {self.most_partitions}"
            )
        self._traffic: dict[str, LogTraffic] | None = None
        self._groups: list[GroupSummary] | None = None
        self._committed: list[CommittedOffset] | None = None
        self._transactions: list[TransactionMetadata] | None = None
        self._undecided: dict[int, TransactionMetadata] | None = None

    # Each of these is called as `found = yield from scrape.traffic()`

    def traffic(self) -> SlicedWork[Mapping[str, LogTraffic]]:
        """Sum up the traffic of each topic."""
        if self._traffic is None:
            sums: dict[str, LogTraffic] = {}
            for count, log in enumerate(self.logs, 1):
                topic, one = log.topic_partition.topic, log.traffic
                known = sums.get(topic)
                sums[topic] = one if known is None else LogTraffic(*map(sum, zip(known, one, strict=True)))
                if count % STEP == 0:
                    yield
            self._traffic = sums
        return self._traffic

    def groups(self) -> SlicedWork[Sequence[GroupSummary]]:
        """Collect all groups."""
        if self._groups is None:
            found = []
            for count, summary in enumerate(self.view.services.groups.summaries(), 1):
                found.append(summary)
                if count % STEP == 0:
                    yield
            self._groups = found
        return self._groups

    def committed(self) -> SlicedWork[Sequence[CommittedOffset]]:
        """Collect what groups have committed of partitions that are led here; nothing if that is too much."""
        if self._committed is None:
            groups = yield from self.groups()
            count = sum(len(group.committed) for group in groups)
            if count > self.most_partitions:
                self.notes.append(
                    f"left out: the lags of groups, which have {count} committed offsets; "
                    f"fencepost.metrics.max.partitions is {self.most_partitions}"
                )
                groups = ()
            directory = self.view.services.topics.directory
            found = []
            for group in groups:
                # A copy: commits go on between two steps.
                for topic_partition, value in list(group.committed.items()):
                    log = directory.get(topic_partition)
                    if log is not None and not log.is_offline:
                        found.append(CommittedOffset(group.group_id, topic_partition, value.offset, log))
                        if len(found) % STEP == 0:
                            yield
            self._committed = found
        return self._committed

    def transactions(self) -> SlicedWork[Sequence[TransactionMetadata]]:
        """Collect all transactions of this coordinator."""
        if self._transactions is None:
            self._transactions = self.view.services.transactions.known()
            yield
        return self._transactions

    def undecided(self) -> SlicedWork[Mapping[int, TransactionMetadata]]:
        """Collect the transactions that are open or whose markers are being written, by producer id."""
        if self._undecided is None:
            found = {}
            for count, one in enumerate((yield from self.transactions()), 1):
                if one.state.is_open or one.state.is_prepared:
                    found[one.producer_id] = one
                if count % STEP == 0:
                    yield
            self._undecided = found
        return self._undecided
