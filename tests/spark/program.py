"""The driver of Spark queries as a process of its own: `python -m tests.spark.program MASTER`.

A command is one JSON object on a line of standard input; its answer is one on a line of standard output, after
`ANSWER`.

    {"do": "start", "name": NAME, …}     starts a query from topic to topic; the fields are those of `Query`
    {"do": "save", "name": NAME, …}      writes numbers in one batch job, of the same fields; returns when it is there
    {"do": "wait", "name": NAME}         until it ends: {"error": null, or what it ended with}
    {"do": "stop", "name": NAME}         `query.stop()`
    {"do": "count", "topics": [TOPIC…]}  Spark's own source, read_committed: {TOPIC: [values, different ones]}, without
                                         the marks of `marked`
    {"do": "times", "name": NAME}        {"ms": [of each batch so far]}
    {"do": "state", "name": NAME}        {"active": whether it runs, "error": null, or what it ended with}
    {"do": "processes"}                  {"driver": JVM's id, "executors": [ids of JVMs]}
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ANSWER = "answer: "


@dataclass(frozen=True)
class Query:
    """From a topic through a sink into another topic.

    transformation: a name of `TRANSFORMATIONS`.
    partitions: the number of tasks that write the rows; 0 for one task for each partition of the source.
    flag: a file that `failing` transformations look for.
    interval: Spark's name of a time, such as "1 second", after which each batch begins; without it, the query ends with
    what is there.
    options: of the sink.
    output_mode: "update" goes through `foreachBatch`.
    """

    name: str
    bootstrap: str
    source: str
    target: str
    checkpoint: str
    per_batch: int
    format: str = "fencepost"
    transformation: str = "plain"
    partitions: int = 0
    flag: str = ""
    interval: str = ""
    output_mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)


def marked(value: str) -> str:
    """A value that no other attempt gives: the history checker tells a record of one attempt from another's by it."""
    return f"{value}#{uuid.uuid4().hex[:12]}"


def plain(rows: Any, _query: Query) -> Any:
    return rows.selectExpr("key", "concat(CAST(value AS STRING), '#', uuid()) AS value")


def failing_once(rows: Any, query: Query) -> Any:
    return _failing(rows, query, is_for_good=False)


def failing(rows: Any, query: Query) -> Any:
    return _failing(rows, query, is_for_good=True)


def _failing(rows: Any, query: Query, *, is_for_good: bool) -> Any:
    """Fails in the middle of a task, at the row that the flag's file names, in its first attempt or in each."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    flag = query.flag

    def fail_at_row(value: str) -> str:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        is_now = is_for_good or context.attemptNumber() == 0
        if is_now and os.path.exists(flag) and Path(flag).read_text() == value:
            raise ValueError(f"failing on purpose at {value}")
        return marked(value)

    return rows.select("key", F.udf(fail_at_row, "string")(F.col("value").cast("string")).alias("value"))


def counting(rows: Any, _query: Query) -> Any:
    """A stateful aggregation: how many rows each remainder of ten has so far, one update in each batch."""
    counted = rows.selectExpr("CAST(CAST(value AS STRING) AS INT) % 10 AS key").groupBy("key").count()
    return counted.selectExpr("CAST(key AS STRING) AS key", "concat(key, ':', count, '#', uuid()) AS value")


TRANSFORMATIONS = {one.__name__: one for one in (plain, failing_once, failing, counting)}


def _write(batch: Any, number: int, query: Query) -> None:
    """Write one batch of a query whose rows are updates."""
    writer = batch.write.format(query.format).mode("append").option("batch", number).option("topic", query.target)
    writer.option("kafka.bootstrap.servers", query.bootstrap).options(**query.options).save()


def copying_sink() -> Any:
    """The sink `fencepost-copies`: in the first batch each task is written twice, as by Spark's speculation. Spark
    hears of one of the copies only; in tasks with an odd number the other one comes later.
    """
    from pyspark import TaskContext

    from fencepost.spark.sink import FencepostSource, StreamWriter

    class CopyingWriter(StreamWriter):
        def write(self, iterator: Any) -> Any:
            context: Any = TaskContext.get()
            rows = list(iterator)
            copies = [context.taskAttemptId()]
            if context.getLocalProperty("streaming.sql.batchId") == "0":
                copies.insert(context.partitionId() % 2, copies[0] + 1_000_000)
            reports = {}
            for attempt in copies:
                context._taskAttemptId = attempt
                reports[attempt] = super().write(iter(rows))
            return reports[min(copies)]

    class CopyingSource(FencepostSource):
        @classmethod
        def name(cls) -> str:
            return "fencepost-copies"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's
            made = super().streamWriter(schema, overwrite)
            return CopyingWriter(made.options, made.layout)

    return CopyingSource


class Program:
    """A session, and the queries that were started in it."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._queries: dict[str, Any] = {}

    def start(self, **fields: Any) -> dict[str, Any]:
        query = Query(**fields)
        rows = (
            self._session.readStream.format("kafka")
            .option("kafka.bootstrap.servers", query.bootstrap)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", query.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", query.per_batch)
            .load()
        )
        if query.partitions:
            rows = rows.repartition(query.partitions)
        writer = (
            TRANSFORMATIONS[query.transformation](rows, query)
            .writeStream.format(query.format)
            .outputMode(query.output_mode)
            .option("kafka.bootstrap.servers", query.bootstrap)
            .option("topic", query.target)
            .option("checkpointLocation", query.checkpoint)
            .trigger(**({"processingTime": query.interval} if query.interval else {"availableNow": True}))
        )
        if query.output_mode == "update":  # which no sink in Python has
            writer = writer.foreachBatch(lambda batch, number: _write(batch, number, query))
        for name, value in query.options.items():
            writer = writer.option(name, value)
        self._queries[query.name] = writer.start()
        return {}

    def save(self, **fields: Any) -> dict[str, Any]:
        query = Query(**fields)
        rows = self._session.range(0, query.per_batch, 1, query.partitions)
        rows = TRANSFORMATIONS[query.transformation](rows.selectExpr("CAST(id AS STRING) AS key", "id AS value"), query)
        writer = rows.write.format(query.format).mode("append").option("topic", query.target)
        writer.option("kafka.bootstrap.servers", query.bootstrap).options(**query.options).save()
        return {}

    def wait(self, name: str) -> dict[str, Any]:
        from pyspark.errors import StreamingQueryException

        try:
            self._queries[name].awaitTermination()
        except StreamingQueryException as failure:
            return {"error": str(failure)}
        return {"error": None}

    def state(self, name: str) -> dict[str, Any]:
        query = self._queries[name]
        error = query.exception()
        return {"active": query.isActive, "error": None if error is None else str(error)}

    def times(self, name: str) -> dict[str, Any]:
        return {"ms": [one["durationMs"]["triggerExecution"] for one in self._queries[name].recentProgress]}

    def stop(self, name: str) -> dict[str, Any]:
        self._queries[name].stop()
        return {}

    def count(self, bootstrap: str, topics: list[str]) -> dict[str, Any]:
        rows = (
            self._session.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", ",".join(topics))
            .load()
            .selectExpr("topic", "split_part(CAST(value AS STRING), '#', 1) AS value")
        )
        rows.createOrReplaceTempView("written")
        counted = self._session.sql("SELECT topic, count(*), count(DISTINCT value) FROM written GROUP BY topic")
        return {topic: [count, distinct] for topic, count, distinct in counted.collect()}

    def processes(self) -> dict[str, Any]:
        (driver,) = (one for one in psutil.Process().children() if "java" in one.name())
        executors = [
            one.pid
            for one in driver.children(recursive=True)
            if "java" in one.name() and "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())
        ]
        return {"driver": driver.pid, "executors": executors}


def main(master: str) -> None:
    from fencepost.spark import register
    from scripts.pipeline.flights_summary import spark_session

    session = spark_session("spark-tests", master=master)
    register(session)
    session.dataSource.register(copying_sink())
    program = Program(session)
    answer: dict[str, Any] = {}
    sys.stdout.write(f"{ANSWER}{json.dumps(answer)}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(program, command.pop("do"))(**command)
        sys.stdout.write(f"{ANSWER}{json.dumps(answer)}\n")
        sys.stdout.flush()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
