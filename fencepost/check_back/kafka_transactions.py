"""The transactions of any Kafka, over the wire: ListTransactions, DescribeTransactions, and EndTxn by the pair that is
described."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import translate
from functools import partial
from typing import Any, Final, TypeVar

from fencepost.check_back.case import Decider
from fencepost.check_back.ports import Unavailable
from fencepost.check_back.question import Question
from fencepost.two_phase import Coordinator, HeuristicOutcome, InDoubt, Superseded, TwoPhaseError

T = TypeVar("T")

TIMEOUT_S: Final = 30.0
"""Of one question to the coordinators."""
THREADS: Final = 8
OUTCOMES: Final = {
    "PrepareCommit": "commit",
    "CompleteCommit": "commit",
    "PrepareAbort": "abort",
    "CompleteAbort": "abort",
    "PrepareEpochFence": "abort",
}
TWO_PHASE_TIMEOUT_MS: Final = 2_147_483_647


class KafkaTransactions:
    """See `fencepost.check_back.ports.Transactions`.

    globs: patterns of the ids. options: settings of the Coordinator.
    """

    def __init__(self, bootstrap_servers: str, globs: Sequence[str], **options: Any) -> None:
        self._coordinator = Coordinator(bootstrap_servers, **options)
        self._pattern = "|".join(f"(?:{translate(glob)})" for glob in globs)
        self._threads = ThreadPoolExecutor(THREADS, "check-back-transactions")

    async def close(self) -> None:
        await self._run(self._coordinator.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def all_open(self, is_wanted: Callable[[str], bool]) -> Sequence[Question]:
        found = await self._run(partial(self._coordinator.in_doubt, self._pattern, timeout_s=TIMEOUT_S))
        return [_question(one) for one in found if is_wanted(one.token.transactional_id)]

    async def end(self, question: Question, *, commit: bool) -> str:
        # Described again right before: a pair of transaction version 1 may be in its next transaction already.
        outcome, _ = await self.outcome(question)
        if outcome != "open":
            return outcome
        try:
            complete = partial(self._coordinator.complete, question.token, commit=commit, timeout_s=TIMEOUT_S)
            await self._run(complete)
        except (HeuristicOutcome, Superseded):
            outcome, _ = await self.outcome(question)
            if outcome == "open":
                raise Unavailable("a later session keeps the transaction, and alone may end it") from None
            return outcome
        return "commit" if commit else "abort"

    async def outcome(self, question: Question) -> tuple[str, Decider]:
        token = question.token
        found = await self._run(partial(self._coordinator.describe, token.transactional_id, timeout_s=TIMEOUT_S))
        if found is None or found.start_ms != question.started_ms:
            return "unknown", Decider.CLIENT
        if found.state == "Ongoing":
            is_same = (found.producer_id, found.producer_epoch) == token[:2]
            return ("open" if is_same else "unknown"), Decider.CLIENT
        outcome = OUTCOMES.get(found.state, "unknown")
        # Only the coordinator ends a transaction that is as old as this.
        is_over = found.timeout_ms != TWO_PHASE_TIMEOUT_MS and time.time() * 1000 - found.start_ms > found.timeout_ms
        return outcome, Decider.TIME_OUT if outcome == "abort" and is_over else Decider.CLIENT

    async def _run(self, work: Callable[[], T]) -> T:
        """Ask on a thread. Raises Unavailable."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except (HeuristicOutcome, Superseded):
            raise
        except (TwoPhaseError, TimeoutError, OSError) as error:
            raise Unavailable(str(error) or type(error).__name__) from None


def _question(one: InDoubt) -> Question:
    pairs = (text.rpartition("-") for text in one.partitions)
    return Question(one.token, one.start_ms, tuple(sorted((topic, int(number)) for topic, _, number in pairs)))
