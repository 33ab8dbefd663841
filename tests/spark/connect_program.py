"""Writes through Spark Connect, with a server of its own: `python -m tests.spark.connect_program BOOTSTRAP FOLDER`.

Prints one line of JSON: for each way to write, null or the error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost.spark import IVY_SETTINGS, kafka_connector, register
from tests.support.broker_process import ROOT


def main(bootstrap: str, folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    session = (
        SparkSession.builder.remote("local[2]")
        .config("spark.jars.packages", kafka_connector())
        .config("spark.jars.ivy", str(ROOT / ".cache" / "ivy"))
        .config("spark.jars.ivySettings", str(IVY_SETTINGS))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    register(session)
    session.range(20).selectExpr("CAST(id AS STRING) AS value").repartition(2).write.json(str(folder / "source"))

    def source() -> Any:
        return session.readStream.schema("value STRING").option("maxFilesPerTrigger", 1).json(str(folder / "source"))

    def run(writer: Any, checkpoint: str) -> None:
        query = writer.option("checkpointLocation", str(folder / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    def job() -> None:
        rows = session.range(20).selectExpr("CAST(id AS STRING) AS value").repartition(3)
        options = {"kafka.bootstrap.servers": bootstrap, "topic": "job"}
        rows.write.format("fencepost").mode("append").options(**options).save()

    def stream() -> None:
        options = {"kafka.bootstrap.servers": bootstrap, "topic": "stream", "sink": "stream"}
        for _ in range(2):
            run(source().writeStream.format("fencepost").options(**options), "checkpoint")

    def foreach_batch() -> None:
        def save(batch: Any, number: int) -> None:
            options = {"kafka.bootstrap.servers": bootstrap, "topic": "saves", "sink": "saves", "batch": str(number)}
            batch.write.format("fencepost").mode("append").options(**options).save()

        run(source().writeStream.foreachBatch(save), "another-checkpoint")

    ways: dict[str, Callable[[], None]] = {"job": job, "stream": stream, "foreach_batch": foreach_batch}
    errors: dict[str, str | None] = {}
    for name, write in ways.items():
        try:
            write()
            errors[name] = None
        except Exception as error:  # noqa: BLE001  # each is the answer
            errors[name] = str(error)
    sys.stdout.write(f"\n{json.dumps(errors)}\n")
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
