"""A pipeline with Spark that is exactly once from end to end: departures in, flights and mean delays per carrier and
day out.

    python scripts/pipeline/flights_summary.py --bootstrap HOST:PORT --checkpoint DIR [--follow]

The source reads committed transactions only. The checkpoint holds the offsets read and the sums so far. The sink,
`format("fencepost")`, writes each micro-batch once: the topic `carrier-days` gets one record for each carrier and day
that changed, keyed by them, with totals. Killed at any moment and started again, the job goes on where it was.

It ends when it has read what is there; with --follow it goes on until its standard input ends, too. It needs pyspark,
pyarrow and fencepost. The last line that it prints is one JSON object with what was counted, if that was asked for.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fencepost.spark import IVY_SETTINGS, kafka_connector, register

ROOT = Path(__file__).resolve().parent.parent.parent
EVENT_SCHEMA = "identifier LONG, day STRING, carrier STRING, number INT, airport STRING, time INT, delay_minutes LONG"
OFFSETS_PER_TRIGGER = 50_000
SINK = "flights-summary"
FOLLOWING = "following"


def spark_session(name: str, *, driver_memory: str = "1g", cores: int = 2, master: str | None = None) -> SparkSession:
    """A small local session with the Kafka connector of exactly the installed Spark.

    master: Spark's name of where it runs; None for this process's JVM, with `cores` threads.
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
        resolving = _alone_in_ivy()
        # Spark binds to the machine's host name otherwise, which need not resolve.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            builder.master(master or f"local[{cores}]")
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


def summarize(session: SparkSession, bootstrap_servers: str, checkpoint: Path, *, follow: bool = False) -> None:
    """Run the streaming query over everything committed so far; to follow, until standard input ends."""
    departures = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", "departures")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load()
        .select(F.from_json(F.col("value").cast("string"), EVENT_SCHEMA).alias("departure"))
        .select("departure.*")
    )
    figures = (
        departures.groupBy("carrier", "day")
        .agg(F.count("*").alias("flights"), F.sum("delay_minutes").alias("departure_delay_minutes"))
        .withColumn("mean_departure_delay_minutes", F.col("departure_delay_minutes") / F.col("flights"))
    )
    updates = figures.select(
        F.concat_ws(" ", "carrier", "day").alias("key"),
        F.to_json(F.struct("flights", "departure_delay_minutes", "mean_departure_delay_minutes")).alias("value"),
    )

    def write(batch: DataFrame, number: int) -> None:
        (
            batch.write.format("fencepost")
            .mode("append")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("topic", "carrier-days")
            .option("sink", SINK)
            .option("batch", number)
            .save()
        )

    # Without an aggregation, it would be writeStream.format("fencepost"); Spark has no such sinks for updates.
    writer = updates.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", str(checkpoint))
    if follow:
        query = writer.trigger(processingTime="200 milliseconds").start()
        print(json.dumps({"step": FOLLOWING}), flush=True)
        sys.stdin.read()
        query.processAllAvailable()
        query.stop()
    else:
        writer.trigger(availableNow=True).start().awaitTermination()


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
    parser.add_argument("--checkpoint", required=True, type=Path, help="folder for what the job remembers")
    parser.add_argument("--follow", action="store_true", help="go on until standard input ends")
    parser.add_argument("--count", action="store_true", help="also count the events at both isolation levels")
    options = parser.parse_args()
    session = spark_session("flights-summary")
    register(session)
    try:
        summarize(session, options.bootstrap, options.checkpoint.resolve(), follow=options.follow)
        levels = ("read_committed", "read_uncommitted") if options.count else ()
        counts = {level: count_events(session, options.bootstrap, level) for level in levels}
    finally:
        session.stop()
    print(json.dumps({"counts": counts}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
