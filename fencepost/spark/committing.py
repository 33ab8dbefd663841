"""The driver's side: a batch is committed by a decision record, and its transactions are completed after it.

A later run may repeat every step: decided transactions stay decided, all others are aborted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import chain

from fencepost.spark.clients import forget, identity, is_at_hand, kept
from fencepost.spark.decisions import (
    MOST_NAMED,
    Batch,
    Decision,
    DriverReplaced,
    Latest,
    LedgerChanged,
    NotPreparedAnyMore,
    SinkInUse,
    Standing,
    leftovers,
    listed,
    query_of,
    require_no_gap,
    require_one_save,
    require_prepared,
    standing,
)
from fencepost.spark.messages import Layout
from fencepost.spark.names import draw_nonce, task_ids_pattern
from fencepost.spark.options import Mode, SinkOptions
from fencepost.spark.session import Session
from fencepost.spark.writing import RecordRefused, TaskReport, send_all
from fencepost.two_phase import Coordinator, HeuristicOutcome, InDoubt, Superseded, Token, TwoPhaseError

LATE_TIMEOUT_S = 60.0
"""Time limit of another attempt to complete a decided batch, after its commit has failed."""
OTHER_JOBS_TIMEOUT_S = 10.0
ABORT_TIMEOUT_S = 60.0
"""Time limit of aborting all that belongs to a batch."""
AT_ONCE = 8
EACH_S = 0.02
"""Time of a commit on three machines with too much to do, eight at a time."""
STOPPING_TASKS_S = 3.0
"""How long tasks may continue after Spark has aborted their batch: spark.python.task.killTimeout, and a second."""
LOOK_AGAIN_S = 0.5


class Committer:
    """Commits and aborts batches of one sink."""

    def __init__(self, options: SinkOptions, sink: str) -> None:
        self._options = options
        self._sink = sink

    def commit(self, batch: Batch, reports: Sequence[TaskReport], layout: Layout) -> None:
        """Decide that a batch is committed, and complete its transactions; if it was decided before, complete those.

        Raises NotPreparedAnyMore if a transaction was ended before, SinkInUse, HeuristicOutcome if one was ended the
        other way after the decision, DriverReplaced if another driver takes over meanwhile, SinkUsedTwice if another
        save has written the batch, DecisionsHidden, LedgerChanged, and TimeoutError if no broker answers: the batch may
        be decided.
        """
        if batch.query is None and not any(report.rows for report in reports):
            forget(self._session_key)  # no decision follows, which would show that another one has replaced it
        was_kept = is_at_hand(self._session_key)
        try:
            with self._session() as session:
                self._commit(session, batch, reports, layout)
        except (DriverReplaced, LedgerChanged, SinkInUse):
            if not was_kept:
                raise
            # Spark gives batches of a sink to any of its idle workers: another one has replaced this session since.
            with self._session() as session:
                self._commit(session, batch, reports, layout)

    def _commit(self, session: Session, batch: Batch, reports: Sequence[TaskReport], layout: Layout) -> None:
        tokens = tuple(report.token for report in reports if report.token is not None)
        if self._options.is_one_off:
            session.latest = Latest()
        save = next((report.save for report in reports if report.save is not None), None)
        state = standing(session.latest, self._sink, batch, save=save, reset=self._options.reset)
        session.open_ledger(batch, query_of(batch, save))
        latest = session.latest
        require_no_gap(latest, self._sink, batch, accept=self._options.accept, reset=self._options.reset)
        if state is Standing.DECIDED:
            self._complete(session)
            abort_all(session.coordinator, set(tokens) - set(_decided(latest)))
            if save is not None and latest.decision is not None:
                require_one_save(latest, self._sink, save, accept=self._options.accept)
                session.mark_found(latest.decision, save)
            return
        if not latest.is_done:
            self._complete(session)  # the batch before was decided, but its driver died before completing it
        decision = Decision(
            draw_nonce(),
            batch,
            tokens,
            sum(report.rows for report in reports),
            max((report.prepare_ms for report in reports), default=0),
            save,
            is_each=batch.query is not None and save is None,
            ledger=session.ledger,
        )
        if decision.rows or batch.query is not None:  # a batch without rows has its place among the decisions
            if self._options.mode is Mode.DRIVER:
                self._write_all(session, decision, reports, layout)
            else:
                self._decide(session, decision)
        if self._options.is_one_off:
            self._complete_other_jobs(session)

    def _decide(self, session: Session, decision: Decision) -> None:
        """Commit prepared transactions, and abort those of dead tasks."""
        in_doubt: list[InDoubt] = []

        def check() -> list[InDoubt]:
            if not decision.tokens:
                return in_doubt
            own_ids = {token.transactional_id for token in decision.tokens}
            in_doubt.extend(session.coordinator.in_doubt(task_ids_pattern(self._sink), including=own_ids))
            require_prepared(decision.tokens, in_doubt, session.latest.aborted_until_ms)
            return in_doubt

        try:
            session.decide(decision, check=check)
        except NotPreparedAnyMore:
            abort_all(session.coordinator, decision.tokens)
            raise
        self._complete(session, leftovers(decision.tokens, in_doubt))

    def _write_all(self, session: Session, decision: Decision, reports: Sequence[TaskReport], layout: Layout) -> None:
        """Write the rows of all tasks and the decision in one transaction."""
        chunks = chain.from_iterable(report.chunks for report in reports)
        session.decide_with(decision, lambda producer: send_all(producer, layout, chunks))

    def abort(self, tokens: Sequence[Token], *, is_complete: bool) -> None:
        """Abort the transactions of a batch, unless it is decided: then complete them, for Spark may not run it again.

        is_complete: whether the tokens are those of all tasks; if not, tasks may still be writing, and all that is
        open and not decided is aborted until none is left.
        """
        if self._options.mode is Mode.DRIVER:
            return
        forget(self._session_key)  # another worker may have decided the batch without completing it
        with self._session() as session:
            session.open_ledger()
            abort_all(session.coordinator, set(tokens) - set(_decided(session.latest)))
            self._complete_late(session)
            give_up_at_s = time.monotonic() + STOPPING_TASKS_S
            while not is_complete:
                self._abort_open(session)
                if time.monotonic() > give_up_at_s:
                    return
                time.sleep(LOOK_AGAIN_S)

    def sweep(self) -> int:
        """Complete the decided transactions and abort all other open ones; return how many were aborted."""
        with self._session(is_kept=False) as session:
            session.open_ledger()
            self._complete(session)
            if self._options.is_one_off:
                self._complete_other_jobs(session)
            return self._abort_open(session)

    def _abort_open(self, session: Session) -> int:
        """Abort all open transactions of the sink that are not decided; return how many."""
        decided = set(_decided(session.latest))
        in_doubt = session.coordinator.in_doubt(task_ids_pattern(self._sink))
        found = [open_ for open_ in in_doubt if open_.token not in decided]
        if found:
            # A driver that starts now must not decide them: it reads this mark after it has fenced this one.
            session.mark_aborted(max(open_.start_ms for open_ in found))
            abort_all(session.coordinator, [open_.token for open_ in found])
        return len(found)

    @property
    def _session_key(self) -> Hashable:
        return ("driver", self._sink, identity(self._options))

    def _session(self, *, is_kept: bool = True) -> AbstractContextManager[Session]:
        is_kept = is_kept and not self._options.is_one_off
        return kept(self._session_key, lambda: Session(self._options, self._sink), is_kept=is_kept)

    def _complete_late(self, session: Session) -> None:
        """Complete the latest decision; after a failure, a later session completes it."""
        try:
            self._complete(session, timeout_s=LATE_TIMEOUT_S)
        except (TwoPhaseError, TimeoutError) as error:
            say(str(error))

    def _complete_other_jobs(self, session: Session) -> None:
        """Complete decisions of other batch jobs, whose drivers may have died: nobody runs these jobs again."""
        import confluent_kafka

        try:
            for sink, decision in session.jobs().items():
                failures = end_all(session.coordinator, decision.tokens, commit=True, timeout_s=OTHER_JOBS_TIMEOUT_S)
                for failure in failures:
                    say(f"{decision.batch} was decided, and is there in parts only: {failure}")
                session.mark_job_done(sink, decision, [str(failure.token) for failure in failures])
        except (TwoPhaseError, TimeoutError, confluent_kafka.KafkaException) as error:
            say(f"did not complete what other batch jobs have decided: {error}")

    def _complete(self, session: Session, swept: Sequence[Token] = (), *, timeout_s: float | None = None) -> None:
        """Complete the transactions of the latest decision, abort the swept ones, and mark the decision as done.

        timeout_s: time limit of all completions; the default is the time after which the transactions time out anyway.
        """
        import confluent_kafka

        decision = session.latest.decision
        if decision is None or session.latest.is_done:
            return
        began_s = time.monotonic()
        timeout_s = self._options.completion_timeout_s if timeout_s is None else timeout_s
        failures = end_all(session.coordinator, decision.tokens, commit=True, timeout_s=timeout_s)
        if failures and decision.id not in (self._options.accept, self._options.reset):
            for failure in failures[MOST_NAMED:]:
                say(str(failure))
            remedy = ". Compare the topic with the source"
            if not self._options.is_one_off:
                remedy += (
                    f". To go on with what is there, set option 'sink.accept' to '{decision.id}'; to write the batch "
                    "again, so that records may be there twice, 'sink.reset'"
                )
            raise type(failures[0])(
                f"{decision.batch} of the sink {self._sink!r} is committed, but {len(failures)} of its "
                f"{len(decision.tokens)} transactions are not, or nobody can tell: "
                + listed([str(failure) for failure in failures], "; ")
                + remedy,
                failures[0].token,
            )
        complete_ms = round(1000 * (time.monotonic() - began_s))
        abort_all(session.coordinator, swept)
        try:
            session.mark_done(decision, complete_ms=complete_ms, swept=len(swept))
        except (confluent_kafka.KafkaException, RecordRefused, DriverReplaced) as error:
            if not self._options.is_one_off:
                raise
            # All records of the job are committed: an error would have it run again. The next job finds the decision.
            say(f"did not mark {decision.batch} as done: {error}")
        say(
            f"committed {decision.batch} of {self._sink}: rows={decision.rows} transactions={len(decision.tokens)} "
            f"prepare_ms={decision.prepare_ms} complete_ms={complete_ms} swept={len(swept)}"
        )


def end_all(
    coordinator: Coordinator, tokens: Iterable[Token], *, commit: bool, timeout_s: float
) -> list[TwoPhaseError]:
    """End transactions, AT_ONCE at a time; return an error for each with another outcome, or an unknown one.

    timeout_s: time limit of all, beside EACH_S for each: a thousand take longer than one.
    A failure does not stop the others. Raises Refused, and TimeoutError if no coordinator has answered for some of
    them: call it again then.
    """
    tokens = list(tokens)
    give_up_at_s = time.monotonic() + timeout_s + EACH_S * len(tokens)

    def end(token: Token) -> Exception | None:
        try:
            coordinator.complete(token, commit=commit, timeout_s=max(0.0, give_up_at_s - time.monotonic()))
        except (TwoPhaseError, TimeoutError) as error:
            return error
        return None

    with ThreadPoolExecutor(AT_ONCE) as threads:
        ended = list(threads.map(end, tokens))
    failures: list[TwoPhaseError] = [error for error in ended if isinstance(error, HeuristicOutcome | Superseded)]
    unanswered = [error for error in ended if error is not None and error not in failures]
    if unanswered:
        raise type(unanswered[0])(
            f"{len(unanswered)} of {len(ended)} transactions were not {'committed' if commit else 'aborted'}, which a "
            f"later session does: {unanswered[0]}"
        ) from unanswered[0]
    return failures


def abort_all(coordinator: Coordinator, tokens: Iterable[Token]) -> None:
    """Abort undecided transactions. If an abort fails, a later sweep or the transaction's time-out ends it."""
    try:
        failures = end_all(coordinator, tokens, commit=False, timeout_s=ABORT_TIMEOUT_S)
    except (TwoPhaseError, TimeoutError) as error:
        say(str(error))
        return
    failed = [str(failure) for failure in failures if not isinstance(failure, Superseded)]  # else ended and forgotten
    if failed:
        say(f"did not abort {listed(failed, '; ')}")


def say(text: str) -> None:
    """Write a line to the driver's log: Spark shows the standard error of its Python workers."""
    print(f"fencepost sink: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _decided(latest: Latest) -> tuple[Token, ...]:
    return () if latest.decision is None else latest.decision.tokens
