"""A PySpark job that counts the committed orders of each customer."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession


def orders_by_customer(spark: SparkSession, bootstrap_servers: str) -> DataFrame:
    """A row for each key of `orders`, with the number of its records."""
    orders = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", "orders")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    return orders.selectExpr("CAST(key AS STRING) AS customer").groupBy("customer").count()
