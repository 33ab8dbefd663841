"""`format("fencepost")` beside Spark's own `format("kafka")`: the same rows become the same records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fencepost.spark import register
from tests.support.broker_process import BrokerProcess
from tests.support.refused_connections import refused_connections_are_closed  # noqa: F401

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),  # the first test also waits for the session
    # py4j leaves sockets to the garbage collector, which then warns in whatever test is running.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROWS = """
    SELECT CASE WHEN id % 7 > 0 THEN CAST(id AS STRING) END AS key,
           CASE WHEN id % 5 > 0 THEN CAST(CONCAT('v', id) AS BINARY) END AS value,
           CASE WHEN id % 7 = 0 THEN CAST(id % 4 AS INT) END AS partition,
           CASE WHEN id % 3 > 0
                THEN array(named_struct('key', 'h', 'value', CAST(CONCAT('h', id) AS BINARY))) END AS headers
    FROM range(300)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"num.partitions": "4"}
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=settings) as process:
        yield process


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    register(spark)
    return spark


def write(frame: Any, broker: BrokerProcess, kind: str, **options: str) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    frame.write.format(kind).mode("append").options(**options).save()


def records(spark: Any, broker: BrokerProcess, topic: str) -> list[tuple[Any, ...]]:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "subscribe": topic,
    }
    rows = spark.read.format("kafka").options(**options).load().collect()
    return sorted(
        (
            row["partition"],
            bytes(row["key"] or b""),
            bytes(row["value"] or b""),
            row["value"] is None,
            str(row["headers"]),
        )
        for row in rows
    )


def test_a_thread_that_has_registered_the_sink_can_write_with_it(spark: Any, broker: BrokerProcess) -> None:
    def run() -> None:
        register(spark)
        write(spark.sql(ROWS), broker, "fencepost", topic="of-a-thread")

    with ThreadPoolExecutor(1) as executor:  # its thread has no active session
        executor.submit(run).result()
    assert len(records(spark, broker, "of-a-thread")) == 300


@pytest.mark.parametrize("mode", ["prepared", "driver"])
def test_a_batch_job_writes_the_records_that_sparks_own_sink_writes(
    spark: Any, broker: BrokerProcess, mode: str
) -> None:
    rows = spark.sql(ROWS)
    write(rows, broker, "kafka", topic=f"theirs-{mode}")
    write(rows, broker, "fencepost", topic=f"ours-{mode}", mode=mode)
    ours = records(spark, broker, f"ours-{mode}")
    assert len(ours) == 300
    assert ours == records(spark, broker, f"theirs-{mode}")


def test_a_batch_job_of_forty_tasks_is_all_there(spark: Any, broker: BrokerProcess) -> None:
    rows = spark.range(200).repartition(40).selectExpr("CAST(id AS STRING) AS value")
    write(rows, broker, "fencepost", topic="of-forty")
    assert sorted(int(row[2]) for row in records(spark, broker, "of-forty")) == list(range(200))


def test_rows_go_where_their_topic_column_says(spark: Any, broker: BrokerProcess) -> None:
    rows = spark.sql("SELECT CONCAT('to-', id) AS topic, CAST(id AS STRING) AS value FROM range(2)")
    write(rows, broker, "fencepost", sink="by-column")
    assert [[row[2] for row in records(spark, broker, topic)] for topic in ("to-0", "to-1")] == [[b"0"], [b"1"]]


def test_a_streaming_query_writes_each_row_once_through_a_restart(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    def write_all() -> None:
        query = (
            spark.readStream.schema("value STRING")
            .option("maxFilesPerTrigger", 1)
            .json(str(tmp_path / "source"))
            .writeStream.format("fencepost")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", "streamed")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)

    spark.sql("SELECT CAST(id AS STRING) AS value FROM range(20)").repartition(2).write.json(str(tmp_path / "source"))
    write_all()
    spark.sql("SELECT CAST(id + 20 AS STRING) AS value FROM range(5)").coalesce(1).write.mode("append").json(
        str(tmp_path / "source")
    )
    write_all()
    assert sorted(int(row[2]) for row in records(spark, broker, "streamed")) == list(range(25))


def test_what_a_query_observes_of_its_batches_is_what_their_decisions_say(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    spark.sql("SELECT CAST(id AS STRING) AS value FROM range(20)").coalesce(1).write.json(str(tmp_path / "source"))
    query = (
        spark.readStream.schema("value STRING")
        .json(str(tmp_path / "source"))
        .observe("written", F.count(F.lit(1)).alias("rows"))
        .writeStream.format("fencepost")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", "observed")
        .option("sink", "observing")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    observed = [one["observedMetrics"]["written"]["rows"] for one in query.recentProgress]
    marks = [json.loads(row[2]) for row in records(spark, broker, "fencepost-sink-observing")]
    (decided,), (done,) = ([mark for mark in marks if name in mark] for name in ("rows", "done"))
    assert observed == [decided["rows"]] == [20]
    assert decided["prepare_ms"] > 0
    assert done["complete_ms"] >= 0


def test_records_of_a_key_are_in_the_order_of_their_rows_and_of_their_batches(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    for number in range(3):
        rows = spark.sql(f"SELECT CAST(id % 3 AS STRING) AS key, {number} * 60 + id AS value FROM range(60)")
        rows.coalesce(1).write.mode("append").json(str(tmp_path / "source" / f"{number}"))
    query = (
        spark.readStream.schema("key STRING, value STRING")
        .option("maxFilesPerTrigger", 1)
        .option("recursiveFileLookup", "true")
        .json(str(tmp_path / "source"))
        .repartition(2, "key")
        .writeStream.format("fencepost")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", "ordered")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "ordered"}
    read = spark.read.format("kafka").options(**options).option("kafka.isolation.level", "read_committed").load()
    found: dict[bytes, list[tuple[int, int, int]]] = {}
    for row in read.collect():
        found.setdefault(bytes(row["key"]), []).append((row["partition"], row["offset"], int(row["value"])))
    assert len(found) == 3
    for records_of_key in found.values():
        records_of_key.sort()
        assert len({partition for partition, _, _ in records_of_key}) == 1
        values = [value for _, _, value in records_of_key]
        assert len(values) == 60
        batches = [value // 60 for value in values]
        assert [batch for batch, _ in groupby(batches)] == list(dict.fromkeys(batches)), "a batch is in one piece"
        for number in range(3):
            assert [value for value in values if value // 60 == number] == sorted(
                value for value in values if value // 60 == number
            )


def test_a_foreach_batch_that_saves_twice_with_one_sink_is_refused_in_each_run(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    def save_twice(batch: Any, number: int) -> None:
        for value in ("first", "second"):
            rows = batch.selectExpr(f"'{value}' AS value")
            write(rows, broker, "fencepost", topic="saved", sink="saving", batch=str(number))

    spark.sql("SELECT 'x' AS value").coalesce(1).write.json(str(tmp_path / "source"))
    for _ in range(2):
        query = (
            spark.readStream.schema("value STRING")
            .json(str(tmp_path / "source"))
            .writeStream.foreachBatch(save_twice)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        with pytest.raises(PySparkException, match="Give each save in a foreachBatch a sink of its own"):
            query.awaitTermination(300)
    assert [row[2] for row in records(spark, broker, "saved")] == [b"first"]
    marks = [json.loads(row[2]) for row in records(spark, broker, "fencepost-sink-saving")]
    (decided,) = (mark for mark in marks if "rows" in mark)
    assert decided["save"]["query"] == query.id
    assert decided["save"]["topic"] == "saved"


@pytest.mark.parametrize(("kind", "message"), [(Thread, "InheritableThread"), (InheritableThread, None)])
def test_saves_in_a_thread_of_ones_own_are_written_or_refused_in_words(
    spark: Any, broker: BrokerProcess, tmp_path: Path, kind: type[Thread], message: str | None
) -> None:
    topic = f"threads-{kind.__name__}"
    failures: list[PySparkException] = []

    def save_on_threads(batch: Any, number: int) -> None:
        def save(name: str) -> None:
            register(batch.sparkSession)
            try:
                rows = batch.selectExpr(f"'{name}' AS value")
                write(rows, broker, "fencepost", topic=topic, sink=f"{topic}-{name}", batch=str(number))
            except PySparkException as failure:
                failures.append(failure)

        threads = [kind(target=save, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    spark.sql("SELECT 'x' AS value").coalesce(1).write.json(str(tmp_path / "source"))
    query = (
        spark.readStream.schema("value STRING")
        .json(str(tmp_path / "source"))
        .writeStream.foreachBatch(save_on_threads)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    if message is None:
        assert failures == []
        assert sorted(row[2] for row in records(spark, broker, topic)) == [b"one", b"two"]
    else:
        assert len(failures) == 2
        assert all(message in str(failure) for failure in failures)


REFUSALS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("SELECT 'x' AS value", {}, "topic option required when no 'topic' attribute is present"),
    ("SELECT 1 AS value", {"topic": "out"}, "value attribute unsupported type int"),
    ("SELECT 'x' AS value", {"topic": "out", "kafka.acks": "1"}, "'acks' is not supported"),
    ("SELECT 'x' AS value, CAST(NULL AS STRING) AS topic", {}, "null topic present in the data"),
)


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [*REFUSALS[:1], *(pytest.param(*row, marks=pytest.mark.long) for row in REFUSALS[1:])],
)
def test_what_cannot_be_written_is_refused_in_words(
    spark: Any, broker: BrokerProcess, query: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.sql(query), broker, "fencepost", **options)
