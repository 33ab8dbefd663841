"""Checks of reads: aborted and dirty reads, values that no client sent, polls that go back."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.history.findings import Anomaly, AnomalyFinding, Proof, finding, sent
from fencepost.history.model import Client, History, Send, SendOutcome, Transaction, TransactionOutcome


def find_wrong_reads(history: History, explained: set[tuple[int, Transaction]]) -> Iterator[AnomalyFinding]:
    """Find aborted and dirty reads, one finding for each transaction and for each record outside one.

    explained: (reading line, transaction read) of reads that a cycle explains already.
    """
    reported: set[Transaction] = set()
    for early in history.early_reads:
        transaction = early.send.transaction
        assert transaction is not None
        if transaction in reported or (early.line, transaction) in explained:
            continue
        reported.add(transaction)
        if transaction.outcome is TransactionOutcome.ABORTED:
            yield _aborted_read(transaction, early.send, early.line, early.reader)
        else:
            yield _dirty_read(transaction, early.send, early.line, early.reader)
    for transaction in history.transactions:
        if transaction.outcome is not TransactionOutcome.ABORTED or transaction in reported:
            continue
        for send in transaction.sends:
            if send.committed_read_line and send.committed_reader is not None:
                yield _aborted_read(transaction, send, send.committed_read_line, send.committed_reader)
                break
    for send in history.sends.values():
        if send.outcome is SendOutcome.FAILED and send.read_line and send.transaction not in reported:
            yield finding(
                Anomaly.ABORTED_READ,
                f'"{send.value}" is read although sending it failed',
                sent(send),
                Proof(send.outcome_line, f'sending "{send.value}" fails'),
                Proof(send.read_line, f'{send.reader} reads "{send.value}"'),
            )


def _aborted_read(transaction: Transaction, send: Send, line: int, reader: Client) -> AnomalyFinding:
    if transaction.end_line or transaction.abort_line:
        aborted = Proof(transaction.end_line or transaction.abort_line, f"{transaction.client} aborts it")
    else:
        aborted = Proof(transaction.commit_line, f"{transaction.client} fails to commit it")
    return finding(
        Anomaly.ABORTED_READ,
        f"{reader} reads a record of {transaction}, which is aborted",
        sent(send),
        aborted,
        Proof(line, f'{reader}, a read_committed consumer, reads "{send.value}"'),
    )


def _dirty_read(transaction: Transaction, send: Send, line: int, reader: Client) -> AnomalyFinding:
    if transaction.commit_line:
        what = "before its commit is requested"
        commit = Proof(transaction.commit_line, f"{transaction.client} requests the commit only here")
    else:
        what = "which is never committed"
        commit = None
    return finding(
        Anomaly.DIRTY_READ,
        f"{reader} reads a record of {transaction}, {what}",
        sent(send),
        Proof(line, f'{reader}, a read_committed consumer, reads "{send.value}"'),
        commit,
    )


def find_foreign_reads(history: History) -> Iterator[AnomalyFinding]:
    """Find reads of values that no client has sent, in topics that this history writes to."""
    for read in history.foreign_reads:
        if read.partition.topic not in history.topics_sent_to:
            continue
        send = history.sends.get(read.value)
        yield finding(
            Anomaly.FOREIGN_READ,
            f'{read.client} reads "{read.value}" at offset {read.offset} of {read.partition}, '
            + ("which no client sent" if send is None else "before it is sent"),
            Proof(read.line, f'{read.client} reads "{read.value}"'),
            None if send is None else sent(send),
        )


def find_backward_polls(history: History) -> Iterator[AnomalyFinding]:
    """Find polls that return offsets which their consumer had passed, without a reset of its position."""
    for read in history.backward_reads:
        if read.line == read.former_line:
            proofs = [Proof(read.line, f"one poll gives offset {read.former_offset}, then {read.offset}")]
        else:
            proofs = [
                Proof(read.former_line, f"{read.client} comes to offset {read.former_offset} of {read.partition}"),
                Proof(read.line, f"{read.client} reads offset {read.offset}"),
            ]
        yield finding(
            Anomaly.NONMONOTONIC_POLL,
            f"{read.client} reads offset {read.offset} of {read.partition} after offset {read.former_offset}",
            *proofs,
        )
