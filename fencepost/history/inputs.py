"""Check of consume-transform-produce: each input below a group's committed offset is in exactly one committed
transaction."""

from __future__ import annotations

from collections.abc import Container, Iterator

from fencepost.history.findings import Anomaly, AnomalyFinding, Proof, committed, finding, sent
from fencepost.history.model import History, OffsetCommit, Partition, Send, Transaction
from fencepost.history.offsets import GroupOffsets
from fencepost.history.visibility import Missing


class Inputs:
    """Inputs that the transactions of each group have processed."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._processed: dict[str, dict[str, tuple[Transaction, int]]] = {}
        self._perhaps_processed: dict[str, set[str]] = {}
        self.twice: set[Transaction] = set()

    def find_processed_twice(self) -> Iterator[AnomalyFinding]:
        """Find inputs in two committed transactions of one group, one finding per later transaction."""
        for transaction in self._history.transactions:
            group_id = _group_id(transaction)
            if group_id is None or not transaction.may_be_committed:
                continue
            inputs = _inputs(transaction)
            if not transaction.is_committed:
                self._perhaps_processed.setdefault(group_id, set()).update(value for _, value in inputs)
                continue
            processed = self._processed.setdefault(group_id, {})
            for line, value in inputs:
                former, former_line = processed.setdefault(value, (transaction, line))
                if former is transaction or transaction in self.twice:
                    continue
                self.twice.add(transaction)
                yield finding(
                    Anomaly.INPUT_PROCESSED_TWICE,
                    f'the input "{value}" is in the output of {former} and of {transaction}',
                    Proof(former_line, f'{former.client} deals with "{value}"'),
                    committed(former),
                    Proof(line, f'{transaction.client} deals with "{value}" again'),
                    committed(transaction),
                )

    def find_never_processed(self, offsets: GroupOffsets, missing: Missing) -> Iterator[AnomalyFinding]:
        """Find inputs below a group's committed offset that no committed transaction has; after find_processed_twice.

        missing: records reported as lost, which no client could process.
        """
        for (group_id, partition), commits in offsets.commits.items():
            processed = self._processed.get(group_id)
            if processed is None or any(one.transaction is None and one.may_have_taken_effect for one in commits):
                continue
            applied = [commit for commit in commits if commit.surely_took_effect]
            if applied and partition.topic not in self._history.compacted_topics:
                perhaps = self._perhaps_processed.get(group_id, set())
                for offset, commit in _passed_over(partition, processed, perhaps, applied, missing):
                    yield _never_processed(partition.log[offset], offset, partition, commit)


def _passed_over(
    partition: Partition,
    processed: Container[str],
    perhaps_processed: Container[str],
    applied: list[OffsetCommit],
    missing: Missing,
) -> Iterator[tuple[int, OffsetCommit]]:
    """The first unprocessed input's offset below each commit that skipped any; applied: commits that took effect."""
    end = max(commit.offset for commit in applied)
    is_started = False
    reported: set[OffsetCommit] = set()
    for offset in sorted(partition.log):
        send = partition.log[offset]
        if offset >= end:
            return
        if send.value in processed or send.value in perhaps_processed:
            is_started = True
        elif is_started and send.is_visible(committed=True):
            if send in missing.sends or send.transaction in missing.transactions:
                continue
            commit = min((one for one in applied if one.offset > offset), key=lambda one: one.line)
            if commit not in reported:
                reported.add(commit)
                yield offset, commit


def _never_processed(send: Send, offset: int, partition: Partition, commit: OffsetCommit) -> AnomalyFinding:
    assert commit.transaction is not None
    return finding(
        Anomaly.INPUT_NEVER_PROCESSED,
        f'"{send.value}" at offset {offset} of {partition} is in no committed output of group {commit.group_id!r}, '
        f"whose committed offset is past it",
        sent(send),
        Proof(commit.line, f"{commit.client} adds offset {commit.offset} of {partition} to its transaction"),
        committed(commit.transaction),
    )


def _group_id(transaction: Transaction) -> str | None:
    if transaction.offset_commits:
        return transaction.offset_commits[0].group_id
    return transaction.client.group_id


def _inputs(transaction: Transaction) -> list[tuple[int, str]]:
    """(line, value) of all inputs that a transaction names."""
    named = [(send.line, value) for send in transaction.sends for value in send.inputs or ()]
    return named + transaction.inputs_without_records
