"""A query whose checkpoint is of a history that the broker has lost: it misses no record that was written since."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_restored_directory import of_librdkafka
from tests.spark.world import Spark
from tests.support.broker_process import BrokerProcess
from tests.support.refused_connections import refused_connections_are_closed  # noqa: F401
from tests.support.restored_broker import KEPT, LOST, NEW, RestoredBroker, restored_broker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[RestoredBroker]:
    with restored_broker(tmp_path) as restored:
        yield restored


def copy_what_is_there(spark: Any, broker: BrokerProcess, where: Path, **options: int) -> int:
    """Run a query over what is there, with its checkpoint and its files below `where`; returns its batches' count."""
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("path", str(where / "copied"))
        .option("checkpointLocation", str(where / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return len(query.recentProgress)


def copied(spark: Any, where: Path) -> list[str]:
    return sorted(row["value"] for row in spark.read.parquet(str(where / "copied")).collect())


def test_sparks_own_source_goes_on_with_the_first_new_record(
    spark: Any, restored: RestoredBroker, tmp_path: Path
) -> None:
    plain, limited = tmp_path / "plain", tmp_path / "limited"
    restored.copy()
    restored.write(LOST)
    for where in (plain, limited):
        copy_what_is_there(spark, restored.broker, where)
    restored.lose_and_restore()
    restored.write(NEW)
    copy_what_is_there(spark, restored.broker, plain)
    batches = copy_what_is_there(spark, restored.broker, limited, maxOffsetsPerTrigger=400_000_000)
    assert batches >= 3, "offsets that are left out are planned as others are"
    for where in (plain, limited):
        assert copied(spark, where) == sorted([*KEPT, *LOST, *NEW])


@pytest.mark.long
def test_a_query_of_fencepost_s_sink_names_the_restored_decision_topic_and_goes_on_when_that_is_accepted(
    tmp_path: Path,
) -> None:
    with (
        restored_broker(tmp_path, topics=("orders", "copies")) as restored,
        Spark("local[2]", tmp_path / "spark.log") as spark,
    ):

        def run(**options: str) -> str | None:
            """Run the query until it ends; returns its error."""
            spark.ask(
                "start",
                name="copying",
                bootstrap=restored.broker.bootstrap,
                source="orders",
                target="copies",
                checkpoint=str(tmp_path / "checkpoint"),
                per_batch=10**13,
                options={"sink": "copying", **options},
            )
            error: str | None = spark.ask("wait", name="copying")["error"]
            return error

        assert run() is None
        restored.copy()
        for values in (LOST[:7], LOST[7:]):
            restored.write(values)
            assert run() is None
        restored.lose_and_restore()
        restored.write(NEW)
        errors = [run(), run()]  # the first start may still have the session of the lost history
        told = re.search(r"set option \\*'sink\.accept\\*' to \\*'([0-9a-f]+)", str(errors[-1]))
        assert "the decisions between are missing" in str(errors[-1])
        assert told is not None
        assert run(**{"sink.accept": told[1]}) is None
        found = of_librdkafka(restored.broker.bootstrap, "copies", 0, len(KEPT) + len(NEW))
        assert sorted(value.partition("#")[0] for value in found) == sorted([*KEPT, *NEW])
