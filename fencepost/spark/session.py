"""A driver's session of a sink: its transactional id fences earlier drivers, its records are the sink's ledger."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from fencepost.spark.clients import connect, transactional
from fencepost.spark.decision_topic import DecisionReader, DecisionsHidden, ensure_topic
from fencepost.spark.decisions import (
    MOST_WRITTEN_BYTES,
    NO_TOPIC_IDS,
    Batch,
    Decision,
    DriverReplaced,
    Latest,
    Owner,
    Save,
    aborted_value,
    done_value,
    found_value,
    override_value,
    owner_value,
    partial_value,
    require_ledger,
    require_time,
)
from fencepost.spark.names import (
    aborted_key,
    decision_key,
    done_key,
    draw_nonce,
    driver_id,
    found_key,
    override_key,
    owner_key,
)
from fencepost.spark.options import Mode, SinkOptions
from fencepost.spark.rights import named_rights
from fencepost.spark.writing import FULL_PAUSE_S, Refused
from fencepost.two_phase import Coordinator, InDoubt

FENCE_TIMEOUT_S = 60.0
DECIDE_TIMEOUT_S = 60.0
ABORT_TIMEOUT_S = 10.0


class Session:
    """A driver's session: no earlier one of the sink can decide anything any more.

    It may be kept for many batches: if a later session takes over, the next record of this one is refused. Until then
    nobody else writes to the decision topic about the sink, so it is read once. A session that is used again may have
    stale decisions: only a record that is not refused shows that they are current.
    """

    def __init__(self, options: SinkOptions, sink: str) -> None:
        import confluent_kafka

        self._options = options
        self._sink = sink
        self._topic = options.decision_topic(sink)
        self._latest: Latest | None = None
        self.refused = Refused()
        with named_rights(sink, self._topic), ExitStack() as on_error:
            self.ledger = ensure_topic(options, self._topic)
            self.coordinator = Coordinator(options.bootstrap_servers, **options.coordinator_options())
            on_error.callback(self.coordinator.close)
            self._has_written = not options.is_one_off and self._has_driver_written()
            self.producer = confluent_kafka.Producer(transactional(options, driver_id(sink), **self._configuration()))
            connect(self.producer, self._topic)
            self.producer.init_transactions(FENCE_TIMEOUT_S)
            on_error.pop_all()

    def _configuration(self) -> dict[str, Any]:
        more: dict[str, Any] = {"linger.ms": 0, **self.refused.configuration}
        if self._options.mode is Mode.PREPARED:  # else it writes the user's rows
            # A decision names all transactions, whose names differ in a few bytes only.
            more |= {"compression.type": "gzip", "message.max.bytes": 2 * MOST_WRITTEN_BYTES}
            more |= self._options.driver_timeouts
        return more

    def close(self) -> None:
        self.coordinator.close()
        del self.producer

    @property
    def latest(self) -> Latest:
        """The sink's latest decision, with its marks."""
        if self._latest is None:
            reader = DecisionReader(self._options)
            try:
                with named_rights(self._sink, self._topic):
                    self._latest = reader.latest(self._sink, is_final=True)
            except DecisionsHidden as hidden:
                raise DecisionsHidden(self._say_who_hides(hidden)) from hidden
            finally:
                reader.close()
        return self._latest

    @latest.setter
    def latest(self, latest: Latest) -> None:
        self._latest = latest

    def _has_driver_written(self) -> bool:
        """Return whether an earlier session of the sink's driver has ended a transaction: it has marked the topic."""
        found = self.coordinator.describe(driver_id(self._sink))
        return found is not None and (found.state != "Empty" or found.producer_epoch > 0)

    def open_ledger(self, batch: Batch | None = None, query: str | None = None) -> None:
        """Raise LedgerChanged if the decision topic is not the sink's. Mark it with the sink's query, if it is new.

        batch: the batch that is written; None for an abort. query: id of its query; None if it is not known.
        """
        if self._options.is_one_off:
            return
        latest, reset, accept = self.latest, self._options.reset, self._options.accept
        require_ledger(latest, self._sink, self.ledger, has_written=self._has_written, accept=accept, reset=reset)
        owner, decision = latest.owner, latest.decision
        if batch is not None:
            known = {decision.id} if decision else {self.ledger or NO_TOPIC_IDS, owner.id if owner else None}
            for option, value in (("sink.accept", accept), ("sink.reset", reset)):
                if value is not None and value in known:
                    by = {**_person(), "reason": self._options.reason}
                    self._write(override_key(self._sink, value), override_value(value, option, batch, by))
        if decision is None and (
            owner is None
            or owner.ledger != self.ledger
            or owner.id == reset
            or (owner.query is None and query is not None)
        ):
            owner = Owner(draw_nonce(), query, self.ledger)
            self._write(owner_key(self._sink), owner_value(owner))
            self.latest = latest._replace(owner=owner)

    def _say_who_hides(self, hidden: DecisionsHidden) -> str:
        holders = [
            found.token.transactional_id
            for found in self.coordinator.in_doubt()
            if f"{self._topic}-0" in found.partitions
        ]
        names = ", ".join(holders) or "a transaction that no coordinator knows"
        return (
            f"what the sink {self._sink!r} has decided last may be hidden, so nothing was written or ended: {hidden}, "
            f"because {names} stays open there. Start the query of that transaction's sink again, or call "
            "fencepost.spark.sweep with its options, or end the transaction: fencepost transactions abort"
        )

    def jobs(self) -> dict[str, Decision]:
        """The decisions of other batch jobs without a sink's name that nobody has marked as done."""
        reader = DecisionReader(self._options)
        try:
            found = reader.jobs(self._topic)
        finally:
            reader.close()
        found.pop(self._sink, None)
        return found

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Commit the block's records. If the commit fails, the next session decides its outcome."""
        self.refused.forget()
        self.producer.begin_transaction()
        try:
            with named_rights(self._sink, self._topic):
                yield self.producer
                self.producer.commit_transaction(DECIDE_TIMEOUT_S)
        except BaseException as error:
            with suppress(Exception):  # the next session aborts it
                self.producer.abort_transaction(ABORT_TIMEOUT_S)
            if self.refused.is_fenced(error):
                raise DriverReplaced(
                    f"another driver of the sink {self._sink!r} has taken over: is the query running twice?"
                ) from error
            self.refused.raise_from(error)
            raise

    def decide(self, decision: Decision, *, check: Callable[[], Iterable[InDoubt]]) -> None:
        """Commit a batch, unless the check raises. Both run at once: the record counts from its commit on.

        check: returns the open transactions, with those of the decision. Raises NotPreparedAnyMore if time may end one
        of them before the driver's own, and TooManyTasks before anything is written.
        """
        value = decision.value()
        with ThreadPoolExecutor(1) as thread, self.transaction() as producer:
            checked = thread.submit(check)
            self._produce(producer, decision_key(self._sink), value)
            with suppress(SystemError):  # as `Refused` says; the commit has the reason
                producer.flush(DECIDE_TIMEOUT_S)  # the coordinator has the transaction's start then
            in_doubt = [found for found in checked.result() if not found.is_two_phase]
            own = self.coordinator.describe(driver_id(self._sink)) if in_doubt else None
            if own is not None:
                require_time(decision.tokens, in_doubt, own.start_ms, own.timeout_ms)
        self.latest = self.latest._replace(decision=decision)

    def decide_with(self, decision: Decision, send: Callable[[Any], object]) -> None:
        """Commit a batch whose rows `send` gives to the producer, in the same transaction."""
        with self.transaction() as producer:
            send(producer)
            self._produce(producer, decision_key(self._sink), decision.value())
        self.latest = self.latest._replace(decision=decision)

    def mark_done(self, decision: Decision, *, complete_ms: int, swept: int) -> None:
        """Record that all transactions of a decision are complete."""
        if self._options.is_one_off:  # nobody repeats the job
            self.mark_job_done(self._sink, decision)
        else:
            self._write(done_key(self._sink), done_value(decision, complete_ms=complete_ms, swept=swept))
        self.latest = self.latest._replace(done=decision.id)

    def mark_job_done(self, sink: str, decision: Decision, missing: Sequence[str] = ()) -> None:
        """Remove the decision of a batch job. missing: tokens that were aborted in spite of it; a mark keeps them."""
        with self.transaction() as producer:
            self._produce(producer, decision_key(sink), None)
            if missing:
                self._produce(producer, done_key(sink), partial_value(decision, missing))

    def mark_found(self, decision: Decision, save: Save) -> None:
        """Record that a save has found its batch decided: another save of this run is not the same one."""
        if save.id not in (
            decision.save.id if decision.save else None,
            self.latest.found.id if self.latest.found else None,
        ):
            self._write(found_key(self._sink), found_value(decision, save))
            self.latest = self.latest._replace(found=save)

    def mark_aborted(self, until_ms: int) -> None:
        """Forbid later drivers to decide transactions that began up to this time, in ms of the coordinator's clock."""
        self.latest = self.latest._replace(aborted_until_ms=max(self.latest.aborted_until_ms, until_ms))
        self._write(aborted_key(self._sink), aborted_value(self.latest.aborted_until_ms))

    def _write(self, key: str, value: bytes | None) -> None:
        """Commit one record to the decision topic; None removes the value of its key."""
        with self.transaction() as producer:
            self._produce(producer, key, value)

    def _produce(self, producer: Any, key: str, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(self._topic, key=key, value=value, partition=0)
            except BufferError:  # the rows of a batch may have filled the queue
                producer.poll(FULL_PAUSE_S)
            else:
                return


def _person() -> dict[str, str]:
    """Return the user of this process and its host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return {"user": user, "host": socket.gethostname()}
