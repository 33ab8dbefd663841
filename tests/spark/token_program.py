"""A Spark driver that obtains a delegation token: `python -m tests.spark.token_program BOOTSTRAP USER PASSWORD`.

It writes one line for each step. No reader or writer has a password: only the admin client that Spark creates to obtain
the token, and the one that ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from fencepost.spark import IVY_SETTINGS, kafka_connector

PREFIX = "spark.kafka.clusters.orders."


def main(bootstrap: str, user: str, password: str) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}";',
    }
    configuration = {
        "spark.jars.packages": kafka_connector(),
        "spark.jars.ivySettings": str(IVY_SETTINGS),
        "spark.ui.enabled": "false",
        PREFIX + "auth.bootstrap.servers": bootstrap,
        PREFIX + "target.bootstrap.servers.regex": bootstrap.replace(".", r"\."),
        PREFIX + "security.protocol": "SASL_PLAINTEXT",
        PREFIX + "sasl.token.mechanism": "SCRAM-SHA-512",
        **{f"{PREFIX}kafka.{name}": value for name, value in login.items() if name != "security.protocol"},
    }
    spark = SparkSession.builder.master("local[2]").config(map=configuration).getOrCreate()
    jvm: Any = spark._jvm
    protected = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
    say("without a token", outcome(spark, bootstrap, protected))

    security = jvm.org.apache.hadoop.security
    obtained = security.Credentials()
    session: Any = spark._jsparkSession
    context = session.sparkContext()
    provider = jvm.org.apache.spark.kafka010.KafkaDelegationTokenProvider()
    provider.obtainDelegationTokens(context.hadoopConfiguration(), context.conf(), obtained)
    token = obtained.getAllTokens().iterator().next()
    security.UserGroupInformation.getCurrentUser().addCredentials(obtained)
    say("token", token.getService().toString())

    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", "numbers").save()
    say("by the token", outcome(spark, bootstrap))

    properties = jvm.java.util.Properties()
    for name, value in {**login, "bootstrap.servers": bootstrap}.items():
        properties.setProperty(name, value)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    found = admin.describeDelegationToken().delegationTokens().get()[0]
    say("owner", found.tokenInfo().owner().toString())
    say("its id", found.tokenInfo().tokenId() == bytes(token.getIdentifier()).decode())
    admin.expireDelegationToken(found.hmac()).expiryTimestamp().get()
    admin.close()
    say("after its end", outcome(spark, bootstrap))
    spark.stop()


def say(step: str, result: object) -> None:
    sys.stdout.write(f"{step}: {result}\n")
    sys.stdout.flush()


def outcome(spark: SparkSession, bootstrap: str, options: Mapping[str, str] | None = None) -> str:
    """How many different values Spark's own source reads, or the innermost error."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "numbers", **(options or {})}
    try:
        return str(spark.read.format("kafka").options(**options).load().select("value").distinct().count())
    except Exception as error:
        cause: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
        if cause is None:
            raise
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.getClass().getSimpleName())


if __name__ == "__main__":
    main(*sys.argv[1:])
