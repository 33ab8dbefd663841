"""Checks of groups' committed offsets; those of a transaction are part of it, like its records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from fencepost.history.findings import Anomaly, AnomalyFinding, Proof, commit_reply_or_request, committed, finding
from fencepost.history.model import (
    FetchedOffset,
    History,
    OffsetCommit,
    Partition,
    SendOutcome,
    Transaction,
    TransactionOutcome,
)


class GroupOffsets:
    """All commits of offsets, by group and partition, in the order of their invocations."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.commits: dict[tuple[str, Partition], list[OffsetCommit]] = {}
        for commit in history.offset_commits:
            self.commits.setdefault((commit.group_id, commit.partition), []).append(commit)
        self._sources: dict[tuple[str, Partition, int], list[OffsetCommit]] = {}
        for commit in history.offset_commits:
            if commit.may_have_taken_effect or commit.transaction is not None:
                self._sources.setdefault((commit.group_id, commit.partition, commit.offset), []).append(commit)

    def note_evidence(self) -> None:
        """Record a transaction as committed if a fetched offset can only be its own."""
        for fetched in self._history.fetched_offsets:
            if fetched.offset is None:
                continue
            possible = [
                commit
                for commit in self._sources_of(fetched)
                if commit.may_have_taken_effect and commit.line < fetched.line
            ]
            transactions = {commit.transaction for commit in possible}
            transaction = next(iter(transactions)) if len(transactions) == 1 else None
            if transaction is None or not 0 < transaction.commit_line < fetched.line:
                continue
            what = f"{fetched.client} fetches the committed offset {fetched.offset} of {fetched.partition}"
            if not transaction.offsets_seen_line:
                transaction.offsets_seen_line, transaction.offsets_seen = fetched.line, what
            if not 0 < transaction.evidence_line < fetched.line:
                transaction.evidence_line, transaction.evidence = fetched.line, what

    def _sources_of(self, fetched: FetchedOffset) -> list[OffsetCommit]:
        if fetched.offset is None:
            return []
        return self._sources.get((fetched.group_id, fetched.partition, fetched.offset), [])

    def find_wrong_fetches(self, explained: set[Transaction]) -> Iterator[AnomalyFinding]:
        """Find fetched offsets of uncommitted transactions, and offsets of committed ones that are missing at the end.

        explained: transactions that are already reported.
        """
        reported = set(explained)
        for fetched in self._history.fetched_offsets:
            found = self._unpublished(fetched) or (self._stale(fetched) if fetched.is_final else None)
            if found is not None and found[0] not in reported:
                reported.update(one for one in found[:1] if one is not None)
                yield found[1]

    def _unpublished(self, fetched: FetchedOffset) -> tuple[Transaction, AnomalyFinding] | None:
        """An aborted or dirty read of an offset."""
        sources = self._sources_of(fetched)
        culprit = None
        for commit in sources:
            transaction = commit.transaction
            if transaction is None or (transaction.may_be_committed and 0 < transaction.commit_line < fetched.line):
                return None
            if commit.line < fetched.line:
                culprit = commit
        if culprit is None or culprit.transaction is None:
            return None
        transaction = culprit.transaction
        is_aborted = transaction.outcome is TransactionOutcome.ABORTED
        end = (
            Proof(transaction.end_line or transaction.abort_line, f"{transaction.client} aborts it")
            if is_aborted
            else None
        )
        return transaction, finding(
            Anomaly.ABORTED_READ if is_aborted else Anomaly.DIRTY_READ,
            f"{fetched.client} fetches an offset of {transaction}, which is "
            + ("aborted" if is_aborted else "not committed"),
            _offset_sent(culprit),
            end,
            _fetched_proof(fetched),
        )

    def _stale(self, fetched: FetchedOffset) -> tuple[Transaction | None, AnomalyFinding] | None:
        """A final offset that is not that of a last commit."""
        commits = self.commits.get((fetched.group_id, fetched.partition), [])
        applied = [
            commit
            for commit in commits
            if commit.surely_took_effect and 0 < _settled_line(commit) < fetched.invoke_line
        ]
        if not applied:
            return None
        latest = max(applied, key=lambda commit: commit.line)
        for commit in commits:
            is_candidate = commit.offset == fetched.offset and commit.may_have_taken_effect
            is_superseded = commit.outcome is SendOutcome.OK and commit.outcome_line < latest.line
            if is_candidate and not is_superseded:
                return None
        transaction = latest.transaction
        seen = None if transaction is None else _seen_record(transaction)
        is_torn = transaction is not None and seen is not None
        summary = f"{latest.offset}, the committed offset of group {latest.group_id!r} in {latest.partition}, is lost"
        if is_torn:
            summary = (
                f"of {transaction}, records can be read, but its offset {latest.offset} of {latest.partition} is lost"
            )
        return transaction, finding(
            Anomaly.TORN_TRANSACTION if is_torn else Anomaly.LOST_WRITE,
            summary,
            _offset_sent(latest),
            _commit_shown(latest, is_seen=is_torn),
            seen,
            _fetched_proof(fetched),
        )

    def find_regressions(self, explained: set[Transaction]) -> Iterator[AnomalyFinding]:
        """Find committed transactions that moved a group's offset back: their input is processed twice.

        explained: transactions for which this is already reported.
        """
        for commits in self.commits.values():
            applied = [one for one in commits if one.transaction is not None and one.surely_took_effect]
            becoming_known = deque(sorted(applied, key=_known_line))
            plain = deque(one for one in commits if one.transaction is None and one.may_have_taken_effect)
            greatest: OffsetCommit | None = None
            reset_line = 0
            for commit in applied:
                while plain and plain[0].line < commit.line:
                    reset_line = plain.popleft().line
                while becoming_known and _known_line(becoming_known[0]) < commit.line:
                    known = becoming_known.popleft()
                    if greatest is None or greatest.line < reset_line or known.offset > greatest.offset:
                        greatest = known
                if greatest is None or greatest.line < reset_line or commit.offset >= greatest.offset:
                    continue
                reset_line = commit.line
                if commit.transaction not in explained and not _was_sought(commit, greatest):
                    yield _regression(greatest, commit)


def _regression(greatest: OffsetCommit, commit: OffsetCommit) -> AnomalyFinding:
    assert greatest.transaction is not None
    assert commit.transaction is not None
    return finding(
        Anomaly.OFFSET_REGRESSION,
        f"{commit.transaction} takes group {commit.group_id!r} back in {commit.partition}, "
        f"from offset {greatest.offset} to {commit.offset}",
        _offset_sent(greatest),
        committed(greatest.transaction),
        _offset_sent(commit),
        committed(commit.transaction),
    )


def _known_line(commit: OffsetCommit) -> int:
    assert commit.transaction is not None
    return commit.transaction.known_line


def _commit_shown(commit: OffsetCommit, *, is_seen: bool) -> Proof | None:
    """Proof that an offset is committed; is_seen: other proofs show records of its transaction."""
    if commit.transaction is None:
        return Proof(commit.outcome_line, "it is acknowledged")
    return commit_reply_or_request(commit.transaction) if is_seen else committed(commit.transaction)


def _settled_line(commit: OffsetCommit) -> int:
    return commit.outcome_line if commit.transaction is None else commit.transaction.settled_line


def _was_sought(commit: OffsetCommit, former: OffsetCommit) -> bool:
    """Whether the application requested reprocessing, by a seek to before the committed offset."""
    line, position = commit.seek
    return line > former.line and (position is None or position < former.offset)


def _seen_record(transaction: Transaction) -> Proof | None:
    for send in transaction.sends:
        if send.committed_read_line:
            return Proof(
                send.committed_read_line, f'{send.committed_reader} reads "{send.value}" of the same transaction'
            )
    return None


def _offset_sent(commit: OffsetCommit) -> Proof:
    how = "commits" if commit.transaction is None else "adds to its transaction"
    return Proof(
        commit.line, f"{commit.client} {how} offset {commit.offset} of {commit.partition} for group {commit.group_id!r}"
    )


def _fetched_proof(fetched: FetchedOffset) -> Proof:
    offset = "no offset" if fetched.offset is None else f"offset {fetched.offset}"
    return Proof(
        fetched.line, f"{fetched.client} fetches {offset} of {fetched.partition} for group {fetched.group_id!r}"
    )
