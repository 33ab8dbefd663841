"""The data source `fencepost` as Spark sees it: its writers hand over to the task's or to the driver's side."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

from fencepost.protocol.checked_json import parse_object
from fencepost.spark.committing import Committer
from fencepost.spark.decisions import Batch, Save
from fencepost.spark.messages import Chunk, Layout
from fencepost.spark.names import draw_nonce, one_off_sink, spark_id
from fencepost.spark.options import SinkOptions
from fencepost.spark.workers import begin_use
from fencepost.spark.writing import Task, TaskReport, write

NAME = "fencepost"
# Spark sets these on the thread that calls a `foreachBatch`: the group of a query's jobs is named after its run.
QUERY_PROPERTY = "sql.streaming.queryId"
RUN_PROPERTY = "spark.jobGroup.id"

NO_RUN = (
    "Spark does not say which run of the query this save belongs to, so a second save of a batch could not be told "
    "from a repeated one: call save in the thread in which Spark calls the function of foreachBatch, or in a "
    "pyspark.InheritableThread that it starts. For a job of its own, leave the option 'batch' out"
)


class SaveOfNoRun(Exception):  # noqa: N818  # callers handle it
    """A save of a batch whose run Spark does not say."""


# PySpark 4.0 gives rows alone, later versions give Arrow's batches.
StreamWriterBase: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)
BatchWriterBase: Any = getattr(datasource, "DataSourceArrowWriter", DataSourceWriter)


class Report(WriterCommitMessage):  # type: ignore[misc]  # has no types
    """A task's report, on its way to the driver."""

    def __init__(self, report: TaskReport) -> None:
        self.report = report


class FencepostSource(DataSource):  # type: ignore[misc]  # as above
    """`format("fencepost")`: a sink for streaming queries and batch jobs. Read with Spark's own `format("kafka")`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.sink_options = SinkOptions.read(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's
        return StreamWriter(self.sink_options, _layout(schema, self.sink_options))

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        return BatchWriter(self.sink_options, _layout(schema, self.sink_options))


class StreamWriter(StreamWriterBase):  # type: ignore[misc]  # as above
    """Writes the batches of a streaming query. Spark makes one for the tasks of a batch, another one to commit it."""

    def __init__(self, options: SinkOptions, layout: Layout) -> None:
        begin_use()
        self.options = options
        self.layout = layout
        self.nonce = draw_nonce()

    def write(self, iterator: Iterator[Any]) -> Report:
        from pyspark import TaskContext

        begin_use()
        context = TaskContext.get()
        batch = Batch(
            context.getLocalProperty("sql.streaming.queryId"),
            int(context.getLocalProperty("streaming.sql.batchId")),
        )
        sink = self.options.sink or batch.query
        assert sink is not None
        task = Task(sink, batch, self.nonce, context.partitionId(), context.taskAttemptId())
        return Report(write(self.options, self.layout, task, _chunks(self.layout, iterator, StreamWriterBase)))

    def commit(self, messages: Sequence[Report | None], batchId: int) -> None:  # noqa: N803  # Spark's
        reports = _reports(messages)
        if not reports:
            return
        batch = reports[0].batch
        if batch.number != batchId:
            raise RuntimeError(f"Spark commits batch {batchId}, but the tasks have written {batch}")
        Committer(self.options, reports[0].sink).commit(batch, reports, self.layout)

    def abort(self, messages: Sequence[Report | None], batchId: int) -> None:  # noqa: N803  # Spark's
        reports = _reports(messages)
        sink = self.options.sink or (reports[0].sink if reports else _query_of(self.options.checkpoint))
        if sink is None:
            return
        _abort(self.options, sink, messages)


class BatchWriter(BatchWriterBase):  # type: ignore[misc]  # as above
    """Writes a batch job. The same object commits it, so its number is that of the job; for a batch of a query's
    `foreachBatch`, which Spark may run again, it is the one that the options give.
    """

    def __init__(self, options: SinkOptions, layout: Layout) -> None:
        begin_use()
        self.layout = layout
        self.nonce = draw_nonce()
        job = str(uuid.uuid4())
        self.batch = Batch(None, job) if options.batch is None else options.batch
        self.options = options.one_off() if options.sink is None else options
        self.sink = options.sink or one_off_sink(job)

    def write(self, iterator: Iterator[Any]) -> Report:
        from pyspark import TaskContext

        begin_use()
        context = TaskContext.get()
        save = None
        if self.options.batch is not None:
            query, run = (spark_id(context.getLocalProperty(name)) for name in (QUERY_PROPERTY, RUN_PROPERTY))
            if run is None:
                raise SaveOfNoRun(NO_RUN)
            save = Save(self.nonce, self.options.topic, query, run)
        task = Task(self.sink, self.batch, self.nonce, context.partitionId(), context.taskAttemptId(), save)
        return Report(write(self.options, self.layout, task, _chunks(self.layout, iterator, BatchWriterBase)))

    def commit(self, messages: Sequence[Report | None]) -> None:
        begin_use()
        Committer(self.options, self.sink).commit(self.batch, _reports(messages), self.layout)

    def abort(self, messages: Sequence[Report | None]) -> None:
        _abort(self.options, self.sink, messages)


def _layout(schema: Any, options: SinkOptions) -> Layout:
    return Layout.of(((field.name, field.dataType.simpleString()) for field in schema.fields), options.topic)


def _chunks(layout: Layout, iterator: Iterator[Any], base: type) -> Iterator[Chunk]:
    is_arrow = "Arrow" in base.__name__
    return layout.chunks_of_arrow(iterator) if is_arrow else layout.chunks_of_rows(iterator)


def _reports(messages: Sequence[Report | None]) -> list[TaskReport]:
    return [message.report for message in messages if message is not None]


def _abort(options: SinkOptions, sink: str, messages: Sequence[Report | None]) -> None:
    reports = _reports(messages)
    tokens = [report.token for report in reports if report.token is not None]
    is_complete = bool(messages) and len(reports) == len(messages)
    Committer(options, sink).abort(tokens, is_complete=is_complete)


def _query_of(checkpoint: str | None) -> str | None:
    """The id of a query, from its checkpoint if that is a local folder."""
    path = Path((checkpoint or "").removeprefix("file://").removeprefix("file:")) / "metadata"
    if checkpoint is None or not path.is_file():
        return None
    return parse_object(path.read_bytes()).text("id")
