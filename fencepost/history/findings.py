"""Findings of a check: anomalies, each in one sentence with the lines that prove it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fencepost.history.model import Send, SendOutcome, Transaction, TransactionOutcome


class Anomaly(Enum):
    """Kinds of anomalies, with their names in reports; docs/history.md explains them."""

    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSET = "inconsistent offset"
    FOREIGN_READ = "foreign read"
    ABORTED_READ = "aborted read"
    DIRTY_READ = "dirty read"
    TORN_TRANSACTION = "torn transaction"
    SKIPPED_READ = "skipped read"
    NONMONOTONIC_POLL = "non-monotonic poll"
    NONMONOTONIC_SEND = "non-monotonic send"
    WRITE_CYCLE = "write cycle (G0)"
    READ_CYCLE = "read cycle (G1c)"
    OFFSET_REGRESSION = "offset regression"
    INPUT_PROCESSED_TWICE = "input processed twice"
    INPUT_NEVER_PROCESSED = "input never processed"


class Proof(NamedTuple):
    """One line of the history, and the statement that it proves."""

    line: int
    statement: str


@dataclass(frozen=True, slots=True)
class AnomalyFinding:
    """One anomaly; proofs in the order of their lines, as few as prove it."""

    anomaly: Anomaly
    summary: str
    proofs: tuple[Proof, ...]


def finding(anomaly: Anomaly, summary: str, *proofs: Proof | None) -> AnomalyFinding:
    """Make a finding with its proofs in order; proofs that are None or have no line are omitted."""
    present = {proof for proof in proofs if proof is not None and proof.line > 0}
    return AnomalyFinding(anomaly, summary, tuple(sorted(present)))


def sent(send: Send) -> Proof:
    """Proof that a record was sent."""
    place = send.topic if send.partition is None else str(send.partition)
    return Proof(send.line, f'{send.client} sends "{send.value}" to {place}')


def acknowledged(send: Send) -> Proof | None:
    """Proof that a record was acknowledged, if it was."""
    if send.outcome is not SendOutcome.OK:
        return None
    where = "" if send.acknowledged_offset is None else f" at offset {send.acknowledged_offset}"
    return Proof(send.outcome_line, f'"{send.value}" is acknowledged{where}')


def began(transaction: Transaction) -> Proof:
    """Proof that a transaction began."""
    return Proof(transaction.line, f"{transaction.client} begins the transaction")


def commit_reply_or_request(transaction: Transaction) -> Proof:
    """Return the proof of the commit's outcome for its client; others' sightings are proofs of their own."""
    if transaction.outcome is TransactionOutcome.COMMITTED:
        return Proof(transaction.end_line, f"{transaction.client} gets the acknowledgement of the commit")
    return Proof(transaction.commit_line, f"{transaction.client} requests the commit and gets no outcome")


def committed(transaction: Transaction) -> Proof | None:
    """Return the proof that a transaction is committed: its client's line or, if it never knew, another's sighting."""
    if transaction.outcome is TransactionOutcome.COMMITTED:
        return Proof(transaction.end_line, f"{transaction.client} gets the acknowledgement of the commit")
    if transaction.evidence_line:
        return Proof(transaction.evidence_line, f"{transaction.evidence}: so it is committed")
    return None
