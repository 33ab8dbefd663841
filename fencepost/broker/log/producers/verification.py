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

    lowest_sequence: lowest one of the waiting batches; a later one may not be appended before it.
    transactional_id: id of the requests that wait for it.
    first_swept_at_ms: time at which `expire` first found it.
    """

    __slots__ = (
        "first_swept_at_ms",
        "is_transaction_version_2",
        "lowest_sequence",
        "producer_epoch",
        "transactional_id",
    )

    def __init__(
        self, producer_epoch: int, lowest_sequence: int, is_transaction_version_2: bool, transactional_id: str = ""
    ) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.is_transaction_version_2 = is_transaction_version_2
        self.transactional_id = transactional_id
        self.first_swept_at_ms: int | None = None


ANSWERED_AT_ONCE: Final = VerificationGuard(-1, -1, False)
"""The guard of a batch that is verified and appended in one step: no marker can come between, so nothing is recorded.

It counts only while no verification of the producer is pending, as that one knows which sequence comes first.
"""


class PendingVerifications(dict[int, VerificationGuard]):
    """The pending verifications of one partition, by producer id. `clear` withdraws all, as when leadership is lost.

    Anyone may name any producer id. So requests under another transactional id than the first have a guard of their
    own: their sequences and their failure do not concern the producer's owner.
    """

    __slots__ = ("_others",)

    def __init__(self) -> None:
        super().__init__()
        self._others: dict[tuple[int, str], VerificationGuard] = {}

    def begin(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        transaction_version_2: bool,
        transactional_id: str = "",
    ) -> VerificationGuard:
        """Return the producer's guard under this transactional id, an existing one or a new one. A higher epoch starts
        its lowest sequence anew.
        """
        guard = self.get(producer_id)
        if guard is not None and guard.transactional_id != transactional_id:
            guard = self._others.get((producer_id, transactional_id))
        if guard is None:
            guard = VerificationGuard(producer_epoch, base_sequence, transaction_version_2, transactional_id)
            if producer_id in self:
                self._others[producer_id, transactional_id] = guard
            else:
                self[producer_id] = guard
        elif producer_epoch > guard.producer_epoch:
            guard.producer_epoch = producer_epoch
            guard.lowest_sequence = base_sequence
        elif producer_epoch == guard.producer_epoch and base_sequence < guard.lowest_sequence:
            guard.lowest_sequence = base_sequence
        return guard

    def current(self, producer_id: int, guard: VerificationGuard | None) -> VerificationGuard | None:
        """Return `guard` if it is pending, else the first that is pending for the producer."""
        first = self.get(producer_id)
        if guard is not None and self._others and self._others.get((producer_id, guard.transactional_id)) is guard:
            return guard
        return first

    def withdraw(self, producer_id: int, guard: VerificationGuard) -> None:
        """Forget a guard: the coordinator has said that the producer id is not of this transactional id."""
        if self.get(producer_id) is guard:
            del self[producer_id]
            for key in self._others:
                if key[0] == producer_id:
                    self[producer_id] = self._others.pop(key)
                    return
        elif self._others.get((producer_id, guard.transactional_id)) is guard:
            del self._others[producer_id, guard.transactional_id]

    def transactional_batch_appended(self, producer_id: int, producer_epoch: int, *, is_control: bool) -> None:
        """Withdraw the producer's guards: its transaction is open now, or has ended.

        A guard stays when the marker of a version 2 transaction has its epoch: the guard is then of the next
        transaction.
        """
        if producer_id not in self:
            return
        guards = [self[producer_id]]
        if self._others:
            guards += [guard for key, guard in self._others.items() if key[0] == producer_id]
        for guard in guards:
            if not (is_control and guard.is_transaction_version_2 and guard.producer_epoch == producer_epoch):
                self.withdraw(producer_id, guard)

    def clear(self) -> None:
        super().clear()
        self._others.clear()

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Withdraw guards that a sweep first found at least `expiration_ms` ago; return how many."""
        expired = []
        others = [(producer_id, guard) for (producer_id, _), guard in self._others.items()]
        for producer_id, guard in (*self.items(), *others):
            if guard.first_swept_at_ms is None:
                guard.first_swept_at_ms = now_ms
            elif now_ms - guard.first_swept_at_ms >= expiration_ms:
                expired.append((producer_id, guard))
        for producer_id, guard in expired:
            self.withdraw(producer_id, guard)
        return len(expired)
