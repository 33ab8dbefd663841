"""Verification guards: proof, at the append, that no marker came between asking the coordinator and writing.

Before the first transactional batch of a transaction is appended, the coordinator is asked whether the partition
belongs to it.
While that answer travels the transaction may end; a batch written after its marker would hang for ever. So the asker
takes a guard first, a marker withdraws it, and the append insists that the guard it was given is still the current one.
In memory only: a restart withdraws all.
Source: KIP-890; Kafka's VerificationGuard, VerificationStateEntry and ProducerStateManager.
"""

from __future__ import annotations

from typing import Final


class VerificationGuard:
    """A token equal to nothing but itself, for ids and epochs would not tell a transaction from the one after it; and
    what is known of a producer's pending verification.

    lowest_sequence: of the batches that wait for it; a later one may not be appended before it.
    first_swept_at_ms: when `expire` first met it.
    """

    __slots__ = ("first_swept_at_ms", "is_transaction_version_2", "lowest_sequence", "producer_epoch")

    def __init__(self, producer_epoch: int, lowest_sequence: int, is_transaction_version_2: bool) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.is_transaction_version_2 = is_transaction_version_2
        self.first_swept_at_ms: int | None = None


ANSWERED_AT_ONCE: Final = VerificationGuard(-1, -1, False)
"""The guard of a batch that is confirmed and appended in one step: no marker can come in between, so nothing is noted.

It counts only where no verification of the producer is pending, for that one knows which sequence comes first.
"""


class PendingVerifications(dict[int, VerificationGuard]):
    """The pending verifications of one partition, by producer id. `clear` withdraws all, as when leadership is lost."""

    __slots__ = ()

    def begin(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, transaction_version_2: bool
    ) -> VerificationGuard:
        """The producer's guard: the one it has, or a new one. A higher epoch starts its lowest sequence anew."""
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

        It stays where the marker of a version 2 transaction carries the guard's epoch: that one is of the next
        transaction.
        """
        guard = self.get(producer_id)
        if guard is None:
            return
        if is_control and guard.is_transaction_version_2 and guard.producer_epoch == producer_epoch:
            return
        del self[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Withdraw the guards met by a sweep at least `expiration_ms` ago already; return how many."""
        expired = []
        for producer_id, guard in self.items():
            if guard.first_swept_at_ms is None:
                guard.first_swept_at_ms = now_ms
            elif now_ms - guard.first_swept_at_ms >= expiration_ms:
                expired.append(producer_id)
        for producer_id in expired:
            del self[producer_id]
        return len(expired)
