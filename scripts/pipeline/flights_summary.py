"""A PySpark job over what the flights application writes: flights and mean departure delay per carrier and day.

    python scripts/pipeline/flights_summary.py --bootstrap HOST:PORT --output DIR
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION scripts/pipeline/flights_summary.py ...

It streams what is there (Trigger.AvailableNow), reading committed transactions only, and can be killed and started
again: the checkpoint holds the offsets read and the sums so far, and writing a result again changes nothing.
DIR/figures/batch=N holds all figures as of micro-batch N as Parquet, and a batch that runs again overwrites its own
folder; the topic `carrier-days` gets one record per carrier and day, keyed by them, with totals and not increments.

Under spark-submit the job needs nothing but pyspark. The last line that it prints is one JSON object: where the figures
are, what was counted.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

ROOT = Path(__file__).resolve().parent.parent.parent
EVENT_SCHEMA = "identifier LONG, day STRING, carrier STRING, number INT, airport STRING, time INT, delay_minutes LONG"
OFFSETS_PER_TRIGGER = 400_000


def spark_session(name: str, *, driver_memory: str = "1g", cores: int = 2) -> SparkSession:
    """A small local session with the Kafka connector of exactly the installed Spark.

    The connector is resolved by its coordinates into .cache/ivy, which is the checkout's own. Under spark-submit the
    JVM is there already: then its master, memory and packages count, and only the job's own settings are added.
    """
    builder = (
        SparkSession.builder.appName(name)
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
    )
    resolving: AbstractContextManager[None] = nullcontext()
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        from fencepost.spark import IVY_SETTINGS, kafka_connector

        resolving = _alone_in_ivy()
        # Spark binds to the machine's host name otherwise, which need not resolve.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            builder.master(f"local[{cores}]")
            .config("spark.driver.memory", driver_memory)
            .config("spark.jars.packages", kafka_connector())
            .config("spark.jars.ivy", str(ROOT / ".cache" / "ivy"))
            .config("spark.jars.ivySettings", os.environ.get("FENCEPOST_IVY_SETTINGS", str(IVY_SETTINGS)))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "WARN")
        )
    with resolving:
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


@contextmanager
def _alone_in_ivy() -> Iterator[None]:
    """Ivy expects no other Ivy in its cache; two sessions that start together would spoil each other's downloads."""
    cache = ROOT / ".cache" / "ivy"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def summarize(session: SparkSession, bootstrap_servers: str, output: Path) -> Path:
    """Runs the streaming query over everything committed so far; returns the folder with the newest figures."""
    events = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", "departures")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load()
    )
    figures = (
        events.select(F.from_json(F.col("value").cast("string"), EVENT_SCHEMA).alias("departure"))
        .select("departure.*")
        .groupBy("carrier", "day")
        .agg(F.count("*").alias("flights"), F.sum("delay_minutes").alias("departure_delay_minutes"))
        .withColumn("mean_departure_delay_minutes", F.col("departure_delay_minutes") / F.col("flights"))
    )
    folder = output / "figures"

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        batch.coalesce(1).write.mode("overwrite").parquet(str(folder / f"batch={batch_id}"))
        (
            batch.select(
                F.concat_ws(" ", "carrier", "day").alias("key"),
                F.to_json(F.struct("flights", "departure_delay_minutes", "mean_departure_delay_minutes")).alias(
                    "value"
                ),
            )
            .write.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("topic", "carrier-days")
            .save()
        )
        batch.unpersist()
        _delete_older_figures(folder, batch_id)

    query = (
        figures.writeStream.outputMode("complete")
        .foreachBatch(write)
        .option("checkpointLocation", str(output / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return newest_figures(folder)


def _delete_older_figures(folder: Path, batch_id: int) -> None:
    """Keeps the batch before the newest: a reader may still be at it."""
    for batch in folder.glob("batch=*"):
        if int(batch.name.removeprefix("batch=")) < batch_id - 1:
            shutil.rmtree(batch)


def newest_figures(folder: Path) -> Path:
    """The folder of the newest micro-batch whose figures were written completely."""
    complete = [batch for batch in folder.glob("batch=*") if (batch / "_SUCCESS").exists()]
    return max(complete, key=lambda batch: int(batch.name.removeprefix("batch=")))


def count_events(session: SparkSession, bootstrap_servers: str, isolation_level: str) -> dict[str, int]:
    """What a batch query at this isolation level sees.

    departures, arrivals:                  events in these topics.
    departures_flights, arrivals_flights:  the different flights that these events belong to.
    flights:                               the different flights in either topic, without the cancelled ones.
    cancelled:                             the different flights of which an event says that they never left.
    torn:                                  flights with an event in one of the topics only; a transaction writes both.
    """
    events = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.isolation.level", isolation_level)
        .option("subscribe", "departures,arrivals")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    is_departure = F.col("topic") == "departures"
    event = F.from_json(F.col("value").cast("string"), EVENT_SCHEMA)
    row = (
        events.select("topic", event.alias("event"))
        .groupBy("event.identifier")
        .agg(
            F.count_if(is_departure).alias("departures"),
            F.count_if(~is_departure).alias("arrivals"),
            # A flight that left may have no time of arrival: it was diverted.
            F.count_if(is_departure & F.col("event.time").isNull()).alias("cancelled"),
        )
        .agg(
            F.sum("departures").alias("departures"),
            F.sum("arrivals").alias("arrivals"),
            F.count_if(F.col("departures") > 0).alias("departures_flights"),
            F.count_if(F.col("arrivals") > 0).alias("arrivals_flights"),
            F.count_if(F.col("cancelled") == 0).alias("flights"),
            F.count_if(F.col("cancelled") > 0).alias("cancelled"),
            F.count_if((F.col("departures") > 0) != (F.col("arrivals") > 0)).alias("torn"),
        )
        .collect()[0]
    )
    return {name: count or 0 for name, count in row.asDict().items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Flights and mean departure delay per carrier and day, by Spark.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument("--output", required=True, type=Path, help="folder for figures and checkpoint")
    parser.add_argument("--count", action="store_true", help="also count the events at both isolation levels")
    options = parser.parse_args()
    session = spark_session("flights-summary")
    try:
        result: dict[str, object] = {"figures": str(summarize(session, options.bootstrap, options.output.resolve()))}
        if options.count:
            result["counts"] = {
                level: count_events(session, options.bootstrap, level)
                for level in ("read_committed", "read_uncommitted")
            }
    finally:
        session.stop()
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
