"""The executor's side: a task writes its rows in a transaction of its own, and prepares it.

The driver commits it, by its token. A task that fails aborts; one that is killed leaves an open transaction, which ends
by a sweep after a later commit of the driver, or by its time-out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from operator import length_hint
from typing import Any, NamedTuple

from fencepost.spark.clients import connect, identity, kept, transactional
from fencepost.spark.decision_topic import DecisionReader
from fencepost.spark.decisions import Batch, Save, Standing, standing
from fencepost.spark.messages import Chunk, Layout
from fencepost.spark.names import task_id
from fencepost.spark.options import Mode, SinkOptions
from fencepost.spark.rights import named_rights
from fencepost.two_phase import NotPrepared, Token, confluent_producer, prepare

INIT_TIMEOUT_S = 60.0
ABORT_TIMEOUT_S = 10.0
FULL_PAUSE_S = 0.05
FENCED = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
PURGED = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")  # an abort's effect on records, not its cause


class Task(NamedTuple):
    """One attempt of one task. attempt: unique in a run of Spark. save: None unless the batch is of `foreachBatch`."""

    sink: str
    batch: Batch
    nonce: str
    partition: int
    attempt: int
    save: Save | None = None


class TaskReport(NamedTuple):
    """A task's report to the driver.

    token: token of its prepared transaction; None if the task wrote nothing, as the batch was decided or has no rows.
    chunks: the rows themselves, if the driver is to write them.
    """

    sink: str
    batch: Batch
    token: Token | None = None
    rows: int = 0
    prepare_ms: int = 0
    chunks: tuple[Chunk, ...] = ()
    save: Save | None = None


_written: dict[str, Task] = {}
"""The last task of each sink that this process has written."""


def write(options: SinkOptions, layout: Layout, task: Task, chunks: Iterator[Chunk]) -> TaskReport:
    """Write and prepare the rows of a task; in mode `driver`, only collect them for the driver."""
    if options.mode is Mode.PREPARED:
        return write_prepared(options, layout, task, chunks)
    gathered = tuple(chunks)
    rows = sum(len(chunk.values) for chunk in gathered)
    return TaskReport(task.sink, task.batch, rows=rows, chunks=gathered, save=task.save)


def write_prepared(options: SinkOptions, layout: Layout, task: Task, chunks: Iterator[Chunk]) -> TaskReport:
    """Write all rows in a transaction and prepare it. Any error aborts it and is raised."""
    began_s = time.monotonic()
    nothing = TaskReport(task.sink, task.batch, save=task.save)
    if _is_decided(options, task):
        return nothing
    first = next(chunks, None)
    if first is None:
        return nothing
    refused = Refused()
    own_id = task_id(task.sink, task.nonce, task.partition, task.attempt)
    producer = confluent_producer(transactional(options, own_id, **refused.configuration))
    with named_rights(task.sink, options.decision_topic(task.sink)):
        connect(producer, layout.first_topic(first))
        producer.init_transactions(INIT_TIMEOUT_S)
    producer.begin_transaction()
    try:
        rows = send_all(producer, layout, chain([first], chunks))
        token = prepare(producer, timeout_s=options.delivery_timeout_s + 1)
        refused.raise_from(NotPrepared("the transaction has failed"))
    except BaseException as error:
        with suppress(Exception):  # the driver's sweep, or time, ends it
            producer.abort_transaction(ABORT_TIMEOUT_S)
        refused.raise_from(error)
        raise
    _written[task.sink] = task
    return nothing._replace(token=token, rows=rows, prepare_ms=round(1000 * (time.monotonic() - began_s)))


def _is_decided(options: SinkOptions, task: Task) -> bool:
    """Return whether the batch is decided, to save writing in vain: the driver checks it for certain.

    Skips the check for other tasks of the same run of a batch, and for the batch after the last one of this process:
    batches are repeated only after a start.
    """
    last = _written.get(task.sink)
    is_same = last is not None and (last.batch, last.nonce) == (task.batch, task.nonce)
    if options.is_one_off or is_same or _is_next(None if last is None else last.batch, task.batch):
        return False
    with (
        named_rights(task.sink, options.decision_topic(task.sink)),
        kept(("decisions", identity(options)), lambda: DecisionReader(options)) as reader,
    ):
        latest = reader.latest(task.sink, is_final=False)
    return standing(latest, task.sink, task.batch, save=task.save, reset=options.reset) is Standing.DECIDED


def _is_next(written: Batch | None, batch: Batch) -> bool:
    return (
        written is not None
        and written.query == batch.query is not None
        and isinstance(written.number, int)
        and written.number + 1 == batch.number
    )


def send_all(producer: Any, layout: Layout, chunks: Iterable[Chunk]) -> int:
    """Give all records to a producer; return their number. Waits while its queue is full. Raises RecordRefused."""
    rows = 0
    for chunk in chunks:
        _send(producer, layout, chunk)
        rows += len(chunk.values)
        producer.poll(0)
    return rows


def _send(producer: Any, layout: Layout, chunk: Chunk) -> None:
    import confluent_kafka

    topic = layout.topic
    try:
        if layout.is_plain(chunk):
            _send_plain(producer, topic, chunk)
            return
        for topic, value, key, more in layout.records(chunk):
            while True:
                try:
                    producer.produce(topic, value, key, **more)
                    break
                except BufferError:
                    producer.poll(FULL_PAUSE_S)
    except confluent_kafka.KafkaException as error:
        raise RecordRefused(f"a record was refused: {error.args[0].str()} (topic {topic})") from error


def _send_plain(producer: Any, topic: str | None, chunk: Chunk) -> None:
    """Send rows of values and keys alone: `map` saves the interpreter's steps for each, a third of its time."""
    columns = [chunk.values] if chunk.keys is None else [chunk.values, chunk.keys]
    sent = 0
    while True:
        rest = [iter(column[sent:]) for column in columns]
        try:
            deque(map(producer.produce, repeat(topic), *rest), maxlen=0)
        except BufferError:
            sent = len(chunk.values) - length_hint(rest[0]) - 1  # the row that found the queue full was taken as well
            producer.poll(FULL_PAUSE_S)
        else:
            return


class RecordRefused(Exception):  # noqa: N818  # callers handle it
    """A broker, or the client, has refused a record: the reason is the message."""


class Refused:
    """Cause of the first record's refusal: the producer itself says only that its transaction has failed."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._code = ""
        self.configuration = {"delivery.report.only.error": True, "on_delivery": self}

    def __call__(self, error: Any, message: Any) -> None:
        if error is None or self._reason is not None:
            return
        try:
            code = error.name()
        except SystemError as pending:
            # After a fatal error, confluent-kafka calls with an exception set: this is the one. Its `flush` then raises
            # a SystemError, too.
            error = getattr(pending.__cause__, "args", (error,))[0]
            code = error.name()
        if code not in PURGED:
            self._reason = f"{error.str()} (topic {message.topic()})"
            self._code = code

    def forget(self) -> None:
        self._reason, self._code = None, ""

    def is_fenced(self, error: BaseException) -> bool:
        """Return whether a later session with the same transactional id may be the cause of an error."""
        import confluent_kafka

        code = error.args[0].name() if isinstance(error, confluent_kafka.KafkaException) else self._code
        return code in FENCED

    def raise_from(self, error: BaseException) -> None:
        """Raise RecordRefused if a record's refusal may be the cause of an error."""
        if self._reason is not None and isinstance(error, Exception) and not isinstance(error, RecordRefused):
            raise RecordRefused(f"a record was refused: {self._reason}") from error
