"""For PySpark: an exactly-once sink, and Spark's own Kafka connector in the version that runs with the installed one.

    from fencepost.spark import kafka_connector, register

    spark = SparkSession.builder.config("spark.jars.packages", kafka_connector()).getOrCreate()
    register(spark)
    frame.writeStream.format("fencepost").option("kafka.bootstrap.servers", …).option("topic", …)

Needs `pip install 'fencepost[spark]'`, which takes only versions of PySpark whose connector can be had.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fencepost.spark.connector import NoConnectorError, kafka_connector

__all__ = ["IVY_SETTINGS", "NoConnectorError", "kafka_connector", "register", "sweep"]

IVY_SETTINGS = Path(__file__).with_name("ivysettings.xml")
"""Settings for `spark.jars.ivySettings`: packages come from Maven's central repository alone."""


def register(spark: Any) -> None:
    """Make `format("fencepost")` known to a SparkSession, for `writeStream` and `write` of the calling thread.

    Spark looks a data source up in the session that is active in the calling thread; a new thread has none. So each
    thread that starts queries calls this. Inside `foreachBatch`, Spark sees to it.
    """
    from fencepost.spark.sink import FencepostSource

    spark.dataSource.register(FencepostSource)
    # PySpark makes the session active in this thread as a step of createDataFrame, the one public way to ask for it.
    spark.createDataFrame([], "nothing INT")


def sweep(options: Mapping[str, str]) -> int:
    """End the open transactions of a stopped query: commit the decided, abort the rest. Return how many were aborted.

    The query's next start does so with its first batch. Until then, readers of committed records may wait behind a task
    that was killed. A driver of this sink that still runs is fenced.
    options: those of the query, with `sink` and all `kafka.*`; for a sink without a name, `sink` is the query's id.
    Without `sink`, this completes the decisions of batch jobs that named no sink, and aborts nothing.
    Raises ValueError, KafkaException, HeuristicOutcome, TimeoutError, DecisionsHidden.
    """
    from fencepost.spark.committing import Committer
    from fencepost.spark.names import one_off_sink
    from fencepost.spark.options import SinkOptions

    asked = SinkOptions.read(options)
    if asked.sink is None:
        return Committer(asked.one_off(), one_off_sink(str(uuid.uuid4()))).sweep()
    return Committer(asked, asked.sink).sweep()
