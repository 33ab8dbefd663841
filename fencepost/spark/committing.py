"""The driver's side: a batch is committed by a decision record, and its transactions are completed after it.

Every step may be repeated by a later run: what is decided stays decided, and what is not is aborted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from fencepost.spark.decision_topic import ensure_topic, read_latest
from fencepost.spark.decisions import (
    Batch,
    Decision,
    Latest,
    Standing,
    aborted_value,
    done_value,
    leftovers,
    require_prepared,
    standing,
)
from fencepost.spark.names import aborted_key, decision_key, done_key, draw_nonce, driver_id, task_ids_pattern
from fencepost.spark.options import SinkOptions
from fencepost.spark.writing import TaskReport
from fencepost.two_phase import Coordinator, HeuristicOutcome, Superseded, Token, TwoPhaseError

FENCE_TIMEOUT_S = 60.0
DECIDE_TIMEOUT_S = 60.0
DONE_TIMEOUT_S = 30.0
AT_ONCE = 8
STOPPING_TASKS_S = 3.0
"""How long tasks may go on after Spark has aborted their batch: spark.python.task.killTimeout, and a second."""
LOOK_AGAIN_S = 0.5


class Committer:
    """Commits and aborts batches of one sink."""

    def __init__(self, options: SinkOptions, sink: str) -> None:
        self._options = options
        self._sink = sink
        self._topic = options.decision_topic(sink)

    def commit(self, batch: Batch, reports: Sequence[TaskReport]) -> None:
        """Decide that a batch is committed, and complete its transactions; if it was decided before, complete those.

        Raises NotPreparedAnyMore if a transaction was ended before, SinkInUse, HeuristicOutcome if one was ended the
        other way after the decision.
        """
        tokens = tuple(report.token for report in reports if report.token is not None)
        ensure_topic(self._options, self._topic)
        with self._coordinator() as coordinator, self._fenced() as producer:
            latest = read_latest(self._options, self._sink, must_exist=True)
            state = standing(latest, self._sink, batch, reset=self._options.reset)
            if state is Standing.DECIDED:
                self._complete(coordinator, latest)
                abort_all(coordinator, set(tokens) - set(_decided(latest)))
                return
            if not latest.is_done and batch.query is None:  # the job before died before it had completed them
                self._complete(coordinator, latest)
            if not tokens:
                return
            in_doubt = coordinator.in_doubt(task_ids_pattern(self._sink))
            try:
                require_prepared(tokens, in_doubt, latest.aborted_until_ms)
            except Exception:
                abort_all(coordinator, tokens)
                raise
            decision = Decision(
                draw_nonce(),
                batch,
                tokens,
                sum(report.rows for report in reports),
                max(report.prepare_ms for report in reports),
            )
            self._write(producer, decision_key(self._sink), decision.value())
            swept = leftovers(tokens, in_doubt)
            self._complete(coordinator, Latest(decision), swept)

    def abort(self, batch: Batch | None, tokens: Sequence[Token], *, is_complete: bool) -> None:
        """Abort the transactions of a batch, unless it is decided: then its next run completes them.

        is_complete: whether the tokens are those of all tasks; if not, tasks may still be writing, and all that is
        open and not decided is aborted until none is left.
        """
        ensure_topic(self._options, self._topic)
        with self._coordinator() as coordinator, self._fenced() as producer:
            latest = read_latest(self._options, self._sink, must_exist=True)
            decided = set(_decided(latest))
            abort_all(coordinator, set(tokens) - decided)
            give_up_at_s = time.monotonic() + STOPPING_TASKS_S
            while not is_complete:
                found = [
                    open_ for open_ in coordinator.in_doubt(task_ids_pattern(self._sink)) if open_.token not in decided
                ]
                if found:
                    # A driver that comes now must not decide them: it reads this after it has fenced this one.
                    until_ms = max(latest.aborted_until_ms, *(open_.start_ms for open_ in found))
                    self._write(producer, aborted_key(self._sink), aborted_value(until_ms))
                    abort_all(coordinator, [open_.token for open_ in found])
                if time.monotonic() > give_up_at_s:
                    return
                time.sleep(LOOK_AGAIN_S)

    def _coordinator(self) -> Coordinator:
        return Coordinator(self._options.bootstrap_servers, **self._options.coordinator_options())

    @contextmanager
    def _fenced(self) -> Iterator[Any]:
        """A producer of the driver's id: no earlier one can decide anything any more."""
        import confluent_kafka

        producer = confluent_kafka.Producer({**self._options.client, "transactional.id": driver_id(self._sink)})
        producer.init_transactions(FENCE_TIMEOUT_S)
        yield producer

    def _write(self, producer: Any, key: str, value: bytes) -> None:
        """Commit one record to the decision topic. Raises KafkaException; then it may be committed, or not."""
        producer.begin_transaction()
        producer.produce(self._topic, key=key, value=value, partition=0)
        producer.commit_transaction(DECIDE_TIMEOUT_S)

    def _complete(self, coordinator: Coordinator, latest: Latest, swept: Sequence[Token] = ()) -> None:
        """Complete the transactions of the latest decision, abort what is swept, and mark the decision as done."""
        decision = latest.decision
        if decision is None or latest.is_done:
            return
        began_s = time.monotonic()
        failures = end_all(coordinator, decision.tokens, commit=True)
        if failures and decision.id != self._options.accept:
            raise type(failures[0])(
                f"{decision.batch} of the sink {self._sink!r} is committed, but {len(failures)} of its "
                f"{len(decision.tokens)} transactions are not, or nobody can tell: "
                + "; ".join(map(str, failures))
                + ". Compare the topic with the source. To go on with what is there, set option 'sink.accept' to "
                f"'{decision.id}'; to write the batch again, so that records may be there twice, 'sink.reset'",
                failures[0].token,
            )
        complete_ms = round(1000 * (time.monotonic() - began_s))
        abort_all(coordinator, swept)
        self._mark_done(done_value(decision, complete_ms=complete_ms, swept=len(swept)))

    def _mark_done(self, value: bytes) -> None:
        """Without this mark a repeated commit asks again: so it may be lost."""
        import confluent_kafka

        producer = confluent_kafka.Producer({**self._options.client, "linger.ms": 0})
        producer.produce(self._topic, key=done_key(self._sink), value=value, partition=0)
        producer.flush(DONE_TIMEOUT_S)


def end_all(coordinator: Coordinator, tokens: Iterable[Token], *, commit: bool) -> list[TwoPhaseError]:
    """End transactions, several at once; returns what could not be. Raises TimeoutError if no coordinator answers."""

    def end(token: Token) -> TwoPhaseError | None:
        try:
            coordinator.complete(token, commit=commit)
        except (HeuristicOutcome, Superseded) as error:
            return error
        return None

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return [failure for failure in threads.map(end, tokens) if failure is not None]


def abort_all(coordinator: Coordinator, tokens: Iterable[Token]) -> None:
    """Abort what no batch has decided. What cannot be aborted now is swept later, or ended by time."""
    for token in tokens:
        try:
            with suppress(Superseded):  # ended and forgotten
                coordinator.complete(token, commit=False)
        except (TwoPhaseError, TimeoutError) as error:
            say(f"did not abort {token}: {error}")


def say(text: str) -> None:
    """A line for the driver's log: Spark shows what its Python workers write to standard error."""
    print(f"fencepost sink: {text}", file=sys.stderr, flush=True)  # noqa: T201


def _decided(latest: Latest) -> tuple[Token, ...]:
    return () if latest.decision is None else latest.decision.tokens
