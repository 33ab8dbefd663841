"""One scrape: state that several families need is collected once, in steps between which other work runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fencepost.broker.group.shard import GroupSummary
from fencepost.broker.kernel.sliced_work import SlicedWork, largest
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import LogTraffic
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metrics.group_lags import CommittedOffset, GroupLag, LogOffsets, offsets_of
from fencepost.broker.metrics.node_view import NodeView
from fencepost.broker.transaction.metadata import TransactionMetadata

KINDS_LEFT_OUT: Final = ("partitions", "group_lags", "quota_clients", "client_series")
STEP: Final = 100
"""Logs, groups or transactions that one step reads."""


class Scrape:
    """The state of this node that one scrape shows: each part as of the moment at which it is first asked for, the
    same for all families.

    notes: the series that are left out, with the reason. left_out: their counts by kind.
    """

    def __init__(self, view: NodeView) -> None:
        self.view = view
        self.now_ms = view.services.clock.now_ms()
        self.logs = list(view.logs())
        self.most_partitions = view.settings.fencepost_metrics_max_partitions
        self.notes: list[str] = []
        self.left_out: dict[str, int] = {}
        self.has_too_many_partitions = len(self.logs) > self.most_partitions
        if self.has_too_many_partitions:
            self.leave_out(
                "partitions",
                len(self.logs),
                f"families for each partition, as there are {len(self.logs)} partitions; "
                f"fencepost.metrics.max.partitions is {self.most_partitions}",
            )
        self._offsets: dict[PartitionLog, LogOffsets] | None = None
        self._traffic: dict[str, LogTraffic] | None = None
        self._groups: list[GroupSummary] | None = None
        self._committed_alone: list[tuple[str, TopicPartition, int]] | None = None
        self._committed: list[CommittedOffset] | None = None
        self._lags: Sequence[GroupLag] | None = None
        self._transactions: list[TransactionMetadata] | None = None
        self._undecided: dict[int, TransactionMetadata] | None = None

    def leave_out(self, kind: str, count: int, reason: str) -> None:
        """Note that `count` of a kind are not shown by a family, both for people and as a metric."""
        self.notes.append(f"left out: {reason}")
        self.left_out[kind] = max(count, self.left_out.get(kind, 0))

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

    def offsets(self) -> SlicedWork[Mapping[PartitionLog, LogOffsets]]:
        """Read the offsets of all logs, after the offsets that groups have committed: no lag of a scrape is below 0,
        and each is the difference of two of its other numbers.
        """
        if self._offsets is None:
            yield from self._committed_before_offsets()
            found = {}
            for count, log in enumerate(self.logs, 1):
                found[log] = offsets_of(log)
                if count % STEP == 0:
                    yield
            self._offsets = found
        return self._offsets

    def _committed_before_offsets(self) -> SlicedWork[Sequence[tuple[str, TopicPartition, int]]]:
        if self._committed_alone is None:
            alone = []
            for group in (yield from self.groups()):
                # A copy: commits continue between two steps.
                for topic_partition, value in list(group.committed.items()):
                    alone.append((group.group_id, topic_partition, value.offset))
                    if len(alone) % STEP == 0:
                        yield
            self._committed_alone = alone
        return self._committed_alone

    def committed(self) -> SlicedWork[Sequence[CommittedOffset]]:
        """Collect the offsets that groups have committed of partitions that are led here."""
        if self._committed is None:
            alone = yield from self._committed_before_offsets()
            offsets = yield from self.offsets()
            directory = self.view.services.topics.directory
            found = []
            for count, (group_id, topic_partition, offset) in enumerate(alone, 1):
                log = directory.get(topic_partition)
                if log is not None and not log.is_offline:
                    found.append(
                        CommittedOffset(group_id, topic_partition, offset, log, offsets.get(log) or offsets_of(log))
                    )
                if count % STEP == 0:
                    yield
            self._committed = found
        return self._committed

    def lags(self) -> SlicedWork[Sequence[GroupLag]]:
        """Read the lags of groups; the largest ones if there are too many to show."""
        if self._lags is None:
            committed = yield from self.committed()
            if len(committed) > self.most_partitions:
                self.leave_out(
                    "group_lags",
                    len(committed) - self.most_partitions,
                    f"the smaller lags of groups, which have {len(committed)} committed offsets; "
                    f"fencepost.metrics.max.partitions is {self.most_partitions}",
                )
                committed = yield from largest(self.most_partitions, committed, lambda one: one.end_lag)
            self._lags = yield from self.view.group_lags.read(committed, self.now_ms)
        return self._lags

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
