"""Repair of a data directory: fixes the findings of verification, first on a disk in memory, then on the real one.

A repair after which the log would still be refused is therefore never begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fencepost.broker.config import Settings
from fencepost.broker.inspection.findings import Severity
from fencepost.broker.inspection.metadata_copy import repair_metadata
from fencepost.broker.inspection.overlay_disk import OverlayDisk
from fencepost.broker.inspection.problems import Kind
from fencepost.broker.inspection.putting_back import (
    Move,
    finish_moves,
    misplaced_directories,
    misplaced_files,
    put_back,
)
from fencepost.broker.inspection.repair_apply import apply_plan
from fencepost.broker.inspection.repair_plan import Plan, make_plan
from fencepost.broker.inspection.trial_start import collected_events
from fencepost.broker.inspection.verification import Report, ScannedPartition, Verification
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.storage.disk import Disk, StorageError


@dataclass
class RepairedPartition:
    """The result for one partition. kept: files with the bytes given up. failed: why nothing, or not all, was done."""

    name: TopicPartition
    plan: Plan
    kept: list[str] = field(default_factory=list)
    failed: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether the only problems left are those that the next start fixes."""
        return self.failed is None and all(problem.kind is Kind.TAIL for problem, _ in self.plan.left)


class Repair:
    """One repair of a directory, used exclusively.

    disk:        the disk to write to.
    accept_loss: also give up unrecoverable records.
    cut:         give up all that follows the first loss.
    is_dry_run:  report the changes, and make none.
    """

    def __init__(
        self,
        data_directory: str,
        disk: Disk,
        settings: Settings,
        clock: Clock,
        *,
        accept_loss: bool = False,
        cut: bool = False,
        is_dry_run: bool = False,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._path = data_directory
        self._disk = disk
        self._clock = clock
        self._accept_loss = accept_loss
        self._cut = cut
        self._is_dry_run = is_dry_run
        self._verification = Verification(data_directory, settings, clock, progress=progress)

    async def run(self, wanted: Sequence[TopicPartition] = ()) -> tuple[Report, list[RepairedPartition]]:
        """Repair the named partitions, or all that need it.

        Returns the report from before, and the results. Raises StorageError, UnknownPartitionError.
        The metadata are repaired if no partitions are named; the report then has the findings that are mended in
        `of_metadata`, no longer among the others.
        """
        if not self._is_dry_run:
            await finish_moves(self._path, self._disk)
        report = await self._verification.run(wanted)
        moves = await self._put_back(report, wanted)
        if moves and not self._is_dry_run:
            report = await self._verification.run(wanted)
        report.moves = moves
        if wanted or (any(one.severity is Severity.DAMAGE for one in report.of_metadata) and not self._accept_loss):
            report.of_metadata.clear()
        if report.of_metadata:
            if not self._is_dry_run:
                await repair_metadata(self._path)
            report.findings = [one for one in report.findings if one not in report.of_metadata]
        repaired = []
        with collected_events():
            for partition in report.partitions:
                if self._is_dry_run and any(_concerns(move, self._path, partition.name) for move in moves):
                    continue  # once all is in its place, there may be nothing to do
                plan = make_plan(
                    partition.scan, accept_loss=self._accept_loss, cut=self._cut, topic_id=partition.topic_id
                )
                if not plan.is_empty or plan.left:
                    repaired.append(await self._repair(partition, plan))
        return report, repaired

    async def _put_back(self, report: Report, wanted: Sequence[TopicPartition]) -> list[Move]:
        """Put directories and log files that were exchanged back; nothing if only some partitions are repaired."""
        if wanted:
            return []
        moves = misplaced_directories(self._path, report.known)
        if not self._is_dry_run:
            await put_back(self._path, self._disk, moves)
        of_files = misplaced_files(self._path)
        if not self._is_dry_run:
            await put_back(self._path, self._disk, of_files)
        return [*moves, *of_files]

    async def _repair(self, partition: ScannedPartition, plan: Plan) -> RepairedPartition:
        done = RepairedPartition(partition.name, plan)
        if plan.is_empty:
            return done
        try:
            overlay = OverlayDisk()
            try:
                done.kept = await self._apply(partition, plan, overlay)
            finally:
                overlay.close()
            if not self._is_dry_run:
                done.kept = await self._apply(partition, plan, self._disk)
        except StorageError as error:
            done.failed = str(error)
        return done

    async def _apply(self, partition: ScannedPartition, plan: Plan, disk: Disk) -> list[str]:
        return await apply_plan(
            plan,
            self._path,
            partition.name,
            disk,
            LogConfig() if partition.tried is None else partition.tried.config,
            log_start_offset=partition.log_start_offset,
            topic_id=partition.topic_id,
            now_ms=self._clock.now_ms(),
        )


def _concerns(move: Move, data_directory: str, name: TopicPartition) -> bool:
    directory = f"{data_directory}/{name}"
    return any(path == directory or path.startswith(f"{directory}/") for path in (move.source, move.target))
