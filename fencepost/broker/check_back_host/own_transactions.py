"""The transactions of this broker's coordinators, as the check-back sees and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from fencepost.broker.coordination.runtime import CoordinatorRefusal
from fencepost.broker.transaction.metadata import TWO_PHASE_COMMIT_TIMEOUT_MS, Producer, TransactionMetadata
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.state_machine import COMPLETE_COMMIT, EMPTY, PREPARE_COMMIT
from fencepost.check_back.case import Decider
from fencepost.check_back.ports import Unavailable
from fencepost.check_back.question import Question
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.two_phase.tokens import Token

STEP: Final = 2_000
"""Transactional ids that one step of the event loop examines."""


class OwnTransactions:
    """See `fencepost.check_back.ports.Transactions`."""

    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    async def all_open(self, is_wanted: Callable[[str], bool]) -> Sequence[Question]:
        await self._transactions.ensure_loaded()
        try:
            known = self._transactions.transactions()
        except CoordinatorRefusal as refusal:
            raise _unavailable(refusal.error) from None
        found = []
        for count, one in enumerate(known, 1):
            if one.state.is_open and is_wanted(one.transactional_id):
                found.append(_question(one))
            if count % STEP == 0:
                await asyncio.sleep(0)
        return found

    async def end(self, question: Question, *, commit: bool) -> str:
        token = question.token
        error = await self._transactions.end_by_check_back(
            token.transactional_id,
            Producer(token.producer_id, token.producer_epoch),
            question.started_ms,
            committed=commit,
        )
        if error is NO_ERROR:
            return "commit" if commit else "abort"
        if error is ErrorCode.INVALID_TXN_STATE:
            return "abort" if commit else "commit"
        if error is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return "unknown"
        raise _unavailable(error)

    async def outcome(self, question: Question) -> tuple[str, Decider]:
        found = self._transactions.find(question.token.transactional_id)
        if found is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return "unknown", Decider.CLIENT
        if isinstance(found, ErrorCode):
            raise _unavailable(found)
        if found.state is EMPTY or found.start_ms != question.started_ms:
            return "unknown", Decider.CLIENT
        if found.state.is_open:
            is_same = found.producer == question.token[:2]
            return ("open" if is_same else "unknown"), Decider.CLIENT
        if found.state in (PREPARE_COMMIT, COMPLETE_COMMIT):
            return "commit", Decider.CLIENT
        return "abort", _aborted_by(found)


def _question(one: TransactionMetadata) -> Question:
    token = Token(one.producer_id, one.producer_epoch, one.transactional_id)
    return Question(token, one.start_ms, tuple(sorted((topic, number) for topic, number in one.partitions)))


def _aborted_by(aborted: TransactionMetadata) -> Decider:
    """Whose abort it was: the coordinator's, when the transaction was as old as its time-out allows."""
    has_time_out = aborted.timeout_ms != TWO_PHASE_COMMIT_TIMEOUT_MS
    is_old = aborted.last_update_ms - aborted.start_ms > aborted.timeout_ms
    return Decider.TIME_OUT if has_time_out and is_old else Decider.CLIENT


def _unavailable(error: ErrorCode) -> Unavailable:
    return Unavailable(f"the transaction coordinator does not answer: {error.name}")
