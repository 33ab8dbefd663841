"""The job reads what was committed, and nothing else. Needs Java 17, and the connector from Maven at the first run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from report import orders_by_customer

from fencepost.spark import IVY_SETTINGS, kafka_connector


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", kafka_connector())
        .config("spark.jars.ivySettings", str(IVY_SETTINGS))
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_only_committed_orders_are_counted(fencepost, spark: SparkSession) -> None:
    fencepost.produce("orders", "tea", "milk", key="ada")
    producer = Producer({"bootstrap.servers": fencepost.bootstrap_servers, "transactional.id": "till-1"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"cocoa", b"bob")
    producer.flush()
    producer.abort_transaction()
    rows = orders_by_customer(spark, fencepost.bootstrap_servers).collect()
    assert [(row.customer, row["count"]) for row in rows] == [("ada", 2)]
