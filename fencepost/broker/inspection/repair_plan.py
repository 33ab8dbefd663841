"""Plan of a partition's repair: which bytes of which files are replaced, and which records that gives up.

Records that are given up leave an empty batch with their offsets, as compaction leaves them: no offset is given out
twice, later records keep their places, and readers skip the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.broker.inspection.partition_scan import PartitionScan
from fencepost.broker.inspection.problems import DirectoryProblem, Kind
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.log.files.partition_files import LEADER_EPOCH_FILE, METADATA_FILE, RECOVERY_MARK_FILE
from fencepost.protocol.record_batch import BatchHeader, sealed_header

LARGEST_OFFSET_DELTA = 2**31 - 2
LOSING = frozenset({Kind.DAMAGE, Kind.MISSING, Kind.NOT_RECORDED, Kind.FOREIGN, Kind.REFUSED})
"""Problems that cannot be repaired without giving something up."""


class Edit(NamedTuple):
    """A replaced part of a file. is_kept: whether its old bytes go into a file beside it."""

    position: int
    end_position: int
    replacement: bytes
    is_kept: bool


@dataclass
class Plan:
    """The repair of one partition.

    edits:       edits by the path of a log file; a missing file is created.
    set_aside:   log files that are given up as a whole, and renamed.
    deletes:     files that are rebuilt.
    repaired:    the problems that are solved by it.
    left:        the other problems, with the reason.
    lost_offsets: number of offsets that are given up; each had at most one record.
    reread_from: the first segment that is read again, with all derived files rebuilt; None when nothing is to be done.
    writes_log_start: its line of log-start-offset-checkpoint is rewritten.
    writes_topic_id: partition.metadata is rewritten.
    raises_epoch: the next records get a new leader epoch.
    restarts_at: first offset of a log of which nothing is left.
    """

    edits: dict[str, list[Edit]] = field(default_factory=dict)
    set_aside: list[str] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)
    repaired: list[DirectoryProblem] = field(default_factory=list)
    left: list[tuple[DirectoryProblem, str]] = field(default_factory=list)
    lost_offsets: int = 0
    reread_from: int | None = None
    restarts_at: int | None = None
    writes_log_start: bool = False
    writes_topic_id: bool = False
    raises_epoch: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.repaired


def make_plan(scan: PartitionScan, *, accept_loss: bool, cut: bool = False, topic_id: bytes | None = None) -> Plan:
    """Plan the repair of a partition.

    accept_loss: also give up unrecoverable records.
    cut:         give up all that follows the first loss, rather than leave offsets without records.
    topic_id:    id of the partition's topic; None if unknown.
    """
    plan = Plan()
    cut_at = next((one for one in scan.problems if _loses_records(one)), None) if accept_loss and cut else None
    for problem in scan.problems:
        if problem.kind is Kind.NOTE:
            continue
        if cut_at is not None and problem is not cut_at and _is_behind(problem, cut_at):
            plan.repaired.append(problem)
            continue
        _plan_one(plan, scan, problem, accept_loss=accept_loss, cut_at=cut_at, topic_id=topic_id)
    if cut_at is not None:
        _cut(plan, scan, cut_at)
    if any(problem.kind in LOSING or problem.kind is Kind.UNREADABLE for problem, _ in plan.left):
        return _left_alone(plan)
    for edits in plan.edits.values():
        edits.sort()
    return plan


def _left_alone(plan: Plan) -> Plan:
    """Leave a partition with a loss unchanged, until the loss is accepted or a file restored.

    Other files, above all the lost file's checksum, are the evidence of the loss.
    """
    reason = "nothing of the partition is changed while there is damage that takes something else"
    return Plan(left=[*plan.left, *((problem, reason) for problem in plan.repaired)])


def _plan_one(
    plan: Plan,
    scan: PartitionScan,
    problem: DirectoryProblem,
    *,
    accept_loss: bool,
    cut_at: DirectoryProblem | None,
    topic_id: bytes | None,
) -> None:
    kind = problem.kind
    if kind in LOSING and not accept_loss:
        plan.left.append((problem, "it takes --accept-loss"))
        return
    if kind is Kind.UNREADABLE:
        plan.left.append((problem, "the disk cannot read it: copy what can be read, and put the copy in its place"))
        return
    if kind is Kind.TAIL:
        plan.left.append((problem, "the next start cuts it off: nothing shows that it was ever on the disk as a whole"))
        return
    if kind is Kind.NOT_RECORDED and problem.path.endswith(METADATA_FILE):
        plan.left.append((problem, "move the directory away, or restore it from a backup"))
        return
    if problem.path.endswith(METADATA_FILE):
        if topic_id is None:
            plan.left.append((problem, "the metadata know of no such topic"))
            return
        plan.writes_topic_id = True
        plan.repaired.append(problem)
        return
    plan.repaired.append(problem)
    if kind is Kind.FOREIGN:
        _set_aside_foreign(plan, scan, problem)
        return
    if problem.path.endswith(LOG_START_FILE) and kind is Kind.STALE:
        plan.writes_log_start = True
        return
    if problem.path.endswith(RECOVERY_MARK_FILE) and kind is Kind.STALE:
        plan.deletes.append(problem.path)
        return
    _reread(plan, scan, problem)
    if problem is cut_at:
        return
    if kind is Kind.HEADER:
        assert problem.position is not None
        assert problem.replacement is not None
        end_position = problem.position + len(problem.replacement)
        _edit(plan, problem.path, Edit(problem.position, end_position, problem.replacement, False))
    elif kind is Kind.SUPERFLUOUS:
        _edit(plan, problem.path, _edit_of(problem, b""))
    elif kind in (Kind.DAMAGE, Kind.MISSING):
        _give_up(plan, scan, problem)
    elif kind is Kind.REFUSED and problem.position is None and problem.first_offset is not None:
        # A file before all others is missing: the log begins after it.
        plan.lost_offsets += (problem.end_offset or problem.first_offset) - problem.first_offset
    elif kind is Kind.STALE and problem.path.endswith((LEADER_EPOCH_FILE, ".snapshot", "index")):
        plan.deletes.append(problem.path)


def _loses_records(problem: DirectoryProblem) -> bool:
    return problem.kind in (Kind.DAMAGE, Kind.MISSING)


def _is_behind(problem: DirectoryProblem, other: DirectoryProblem) -> bool:
    if problem.first_offset is None or other.first_offset is None or problem.kind is Kind.UNREADABLE:
        return False
    return problem.first_offset >= other.first_offset


def _give_up(plan: Plan, scan: PartitionScan, problem: DirectoryProblem) -> None:
    assert problem.first_offset is not None
    if not scan.base_offsets:
        plan.restarts_at = problem.end_offset
        plan.writes_topic_id = True
        plan.lost_offsets += (problem.end_offset or 0) - problem.first_offset
        return
    end_offset = problem.end_offset
    if end_offset is None:
        end_offset = problem.first_offset
        plan.raises_epoch = True
    plan.lost_offsets += end_offset - problem.first_offset
    _edit(plan, problem.path, _edit_of(problem, empty_batches(problem, problem.first_offset, end_offset)))
    # A log whose end is lost may have had more than is known: the next records get a new epoch.
    plan.raises_epoch |= end_offset >= scan.end_offset and not problem.follows_valid


def _set_aside_foreign(plan: Plan, scan: PartitionScan, problem: DirectoryProblem) -> None:
    """Keep another log's file, or all of its directory's, beside this log, and give up the offsets in its place."""
    assert problem.first_offset is not None
    end_offset = problem.first_offset if problem.end_offset is None else problem.end_offset
    plan.lost_offsets += end_offset - problem.first_offset
    plan.raises_epoch |= end_offset >= scan.end_offset
    if not problem.path.endswith(".log"):
        plan.set_aside += scan.log_paths
        plan.deletes += scan.side_paths
        plan.restarts_at = end_offset
        plan.writes_topic_id = True
        return
    plan.set_aside.append(problem.path)
    filler = empty_batches(problem, problem.first_offset, end_offset)
    _edit(plan, problem.path, Edit(0, 0, filler, False))
    _reread(plan, scan, problem)


def _cut(plan: Plan, scan: PartitionScan, problem: DirectoryProblem) -> None:
    """Give up everything from a place on, and keep its offsets."""
    assert problem.first_offset is not None
    end_offset = max(scan.end_offset, problem.end_offset or 0)
    filler = empty_batches(problem, problem.first_offset, end_offset)
    position = problem.position or 0
    size_bytes = scan.file_sizes.get(problem.path, 0)
    _edit(plan, problem.path, Edit(position, size_bytes, filler, size_bytes > position))
    plan.set_aside += [path for path in scan.log_paths if path > problem.path]
    plan.lost_offsets += end_offset - problem.first_offset
    plan.raises_epoch = True


def _edit_of(problem: DirectoryProblem, replacement: bytes) -> Edit:
    position = problem.position or 0
    end_position = problem.end_position or position
    return Edit(position, end_position, replacement, end_position > position)


def _edit(plan: Plan, path: str, edit: Edit) -> None:
    edits = plan.edits.setdefault(path, [])
    inside = [other for other in edits if edit.position <= other.position < edit.end_position]
    for other in inside:  # a batch with a repairable header that is given up nevertheless
        edits.remove(other)
    edits.append(edit)


def _reread(plan: Plan, scan: PartitionScan, problem: DirectoryProblem) -> None:
    """Read the log again from the segment before the place on."""
    offset = problem.first_offset
    if offset is None:
        name = problem.path.rpartition("/")[2]
        stem = name.partition(".")[0]
        offset = int(stem) if stem.isdecimal() else 0
        if name.endswith(".snapshot"):
            offset -= 1
    base = max((one for one in scan.base_offsets if one <= offset), default=0)
    plan.reread_from = base if plan.reread_from is None else min(plan.reread_from, base)


def empty_batches(problem: DirectoryProblem, first_offset: int, end_offset: int) -> bytes:
    """Return batches without records that cover the offsets from the first to before the end."""
    content = b""
    while first_offset < end_offset:
        delta = min(end_offset - first_offset - 1, LARGEST_OFFSET_DELTA)
        header = BatchHeader(
            base_offset=first_offset,
            batch_length=0,
            partition_leader_epoch=problem.leader_epoch,
            magic=2,
            crc=0,
            attributes=0,
            last_offset_delta=delta,
            base_timestamp_ms=problem.time_ms,
            max_timestamp_ms=problem.time_ms,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            records_count=0,
        )
        content += sealed_header(header, b"")
        first_offset += delta + 1
    return content
