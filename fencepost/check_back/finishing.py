"""Finds the decided batches of Spark's sinks in any Kafka, and commits their open transactions.

It only sends EndTxn with a commit for listed tokens: it aborts nothing, and begins no session that would fence a
driver. So it may run beside living drivers, and more than once at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from fencepost.check_back.decided import DecidedBatch
from fencepost.check_back.ledgers import Ledgers
from fencepost.client.errors import ClusterError
from fencepost.two_phase import Coordinator, HeuristicOutcome, Outcome, Superseded, Token, TwoPhaseError

TIMEOUT_S: Final = 30.0
"""Of each question, and of the end of each transaction."""
AT_ONCE: Final = 8


class Finished(NamedTuple):
    """Result of the work on one decided batch.

    committed: transactions that were open. already: others that were committed before. lost: tokens that were aborted
    in spite of the decision. unknown: tokens that the coordinators have forgotten, or that are of another cluster.
    error: reason why the rest is still open; None if nothing is. is_marked: whether the decision of a job was removed.
    """

    topic: str
    batch: DecidedBatch
    committed: int
    already: int
    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    error: str | None = None
    is_marked: bool = False


async def finish(ledgers: Ledgers, topic: str, batch: DecidedBatch, coordinator: Coordinator) -> Finished:
    """Commit the open transactions of a decided batch, and mark a batch job as done if nothing of it is open."""
    done = await asyncio.to_thread(end_all, topic, batch, coordinator)
    if not batch.is_job or done.error is not None or done.unknown:
        return done
    try:
        await ledgers.mark_job_done(topic, batch, done.lost)
    except (ClusterError, TimeoutError, OSError) as error:
        return done._replace(error=f"not marked as done: {error}")
    return done._replace(is_marked=True)


def end_all(topic: str, batch: DecidedBatch, coordinator: Coordinator) -> Finished:
    """Commit the open transactions of a decided batch, AT_ONCE at a time."""
    tokens = [Token.parse(text) for text in batch.tokens]
    try:
        outcomes = coordinator.outcomes(tokens, timeout_s=TIMEOUT_S)
    except (TwoPhaseError, TimeoutError, OSError) as error:
        return Finished(topic, batch, 0, 0, error=str(error) or type(error).__name__)
    already = sum(outcome is Outcome.COMMITTED for outcome in outcomes.values())
    lost = [token for token in tokens if outcomes[token] is Outcome.ABORTED]
    unknown = [token for token in tokens if outcomes[token] is Outcome.UNKNOWN]
    left = [token for token in tokens if outcomes[token] is Outcome.PREPARED]
    errors: list[str] = []

    def commit(token: Token) -> bool:
        try:
            coordinator.complete(token, commit=True, timeout_s=TIMEOUT_S, reason="it is decided")
        except HeuristicOutcome:
            lost.append(token)
        except Superseded:
            unknown.append(token)
        except (TwoPhaseError, TimeoutError, OSError) as error:
            errors.append(str(error) or type(error).__name__)
        else:
            return True
        return False

    with ThreadPoolExecutor(AT_ONCE) as threads:
        committed = sum(threads.map(commit, left))
    left_open = f"{len(errors)} of its transactions are still open: {errors[0]}" if errors else None
    return Finished(topic, batch, committed, already, _texts(lost), _texts(unknown), left_open)


def _texts(tokens: Iterable[Token]) -> tuple[str, ...]:
    return tuple(map(str, tokens))
