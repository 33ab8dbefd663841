"""Verification guards: proof, at the append, that no marker came between the question to the coordinator and the write.

Before the first transactional batch of a transaction is appended, the leader asks the coordinator whether the partition
belongs to it.
Meanwhile the transaction may end; a batch written after its marker would hang for ever. So the caller takes a guard
before it asks, a marker withdraws it, and the append requires that its guard is still current. Guards are in memory
only: a restart withdraws all.
Source: KIP-890; Kafka's VerificationGuard, VerificationStateEntry and ProducerStateManager.
"""

from __future__ import annotations

from typing import Final


class VerificationGuard:
    """A token equal only to itself, as ids and epochs do not distinguish a transaction from the next; with the state of
    a producer's pending verification.

    lowest_sequence: of the waiting batches; a later one may not be appended before it.
    first_swept_at_ms: when `expire` first found it.
    """

    __slots__ = ("first_swept_at_ms", "is_transaction_version_2", "lowest_sequence", "producer_epoch")

    def __init__(self, producer_epoch: int, lowest_sequence: int, is_transaction_version_2: bool) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.is_transaction_version_2 = is_transaction_version_2
        self.first_swept_at_ms: int | None = None


ANSWERED_AT_ONCE: Final = VerificationGuard(-1, -1, False)
"""The guard of a batch that is verified and appended in one step: no marker can come between, so nothing is recorded.

It counts only while no verification of the producer is pending, as that one knows which sequence comes first.
"""


class PendingVerifications(dict[int, VerificationGuard]):
    """The pending verifications of one partition, by producer id. `clear` withdraws all, as when leadership is lost."""

    __slots__ = ()

    def begin(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, transaction_version_2: bool
    ) -> VerificationGuard:
        """Return the producer's guard, an existing one or a new one. A higher epoch starts its lowest sequence anew."""
        guard = self.get(producer_id)
        if guard is None:
            guard = self[producer_id] = VerificationGuard(producer_epoch, base_sequence, transaction_version_2)
        elif producer_epoch > guard.producer_epoch:
            guard.producer_epoch = producer_epoch
            guard.lowest_sequence = base_sequence
        elif producer_epoch == guard.producer_epoch and base_sequence < guard.lowest_sequence:
            guard.lowest_sequence = base_sequence
        return guard

    def transactional_batch_appended(self, producer_id: int, producer_epoch: int, *, is_control: bool) -> None:
        """Withdraw the producer's guard: its transaction is open now, or has ended.

        The guard stays when the marker of a version 2 transaction has its epoch: the guard is then of the next
        transaction.
        """
        guard = self.get(producer_id)
        if guard is None:
            return
        if is_control and guard.is_transaction_version_2 and guard.producer_epoch == producer_epoch:
            return
        del self[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Withdraw guards that a sweep first found at least `expiration_ms` ago; return how many."""
        expired = []
        for producer_id, guard in self.items():
            if guard.first_swept_at_ms is None:
                guard.first_swept_at_ms = now_ms
            elif now_ms - guard.first_swept_at_ms >= expiration_ms:
                expired.append(producer_id)
        for producer_id in expired:
            del self[producer_id]
        return len(expired)
