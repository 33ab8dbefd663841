"""Spark's source and sink over SASL_SSL: Kafka's settings of a client, each with `kafka.` in front."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.compat.python_checks import Check
from tests.compat.secured_checks import ADMIN, Login
from tests.compat.spark.session import QUERY_FAILURES, spark

MODULES = "org.apache.kafka.common.security"
SCRAM = Login(mechanism="SCRAM-SHA-512")


def options(login: Login) -> dict[str, str]:
    module = "plain.PlainLoginModule" if login.mechanism == "PLAIN" else "scram.ScramLoginModule"
    return {
        "kafka.bootstrap.servers": login.bootstrap,
        "kafka.security.protocol": login.protocol,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": login.authority_file,
        "kafka.sasl.mechanism": login.mechanism,
        "kafka.sasl.jaas.config": f'{MODULES}.{module} required username="{login.user}" password="{login.password}";',
        # A query gives up when its administrator cannot connect.
        "kafka.default.api.timeout.ms": "10000",
        "kafka.request.timeout.ms": "5000",
    }


def topic_of(check: Check, kind: str, *operations: str) -> str:
    topic = check.name(kind)
    check.ask(f"topic {topic}")
    for operation in operations:
        check.ask(f"allow User:alice {operation} topic {topic}")
    return topic


def write(login: Login, topic: str, count: int) -> None:
    frame = spark().range(count).selectExpr("CAST(id AS STRING) AS value").coalesce(1)
    frame.write.format("kafka").options(**options(login)).option("topic", topic).save()


def source(reader: Any, login: Login, topic: str, **more: str) -> Any:
    return reader.format("kafka").options(**options(login), **more).option("subscribe", topic).load()


def values_in(login: Login, topic: str) -> list[str]:
    frame = source(spark().read, login, topic).selectExpr("offset", "CAST(value AS STRING) AS value")
    return [row["value"] for row in sorted(frame.collect(), key=lambda row: int(row["offset"]))]


def refusal(call: Callable[[], object]) -> str:
    """What a query ends with, with the exceptions behind it."""
    try:
        call()
    except QUERY_FAILURES as failed:
        return str(getattr(failed, "java_exception", None) or failed) + str(failed)
    return "nothing"


def batch(check: Check) -> None:
    topic = topic_of(check, "topic", "READ", "WRITE")
    write(SCRAM, topic, 200)
    # Spark keeps its offsets itself, and needs no right to a group.
    check.equal("values", values_in(SCRAM, topic), [str(number) for number in range(200)])


def stream(check: Check) -> None:
    first, second = topic_of(check, "first", "READ", "WRITE"), topic_of(check, "second", "READ", "WRITE")
    write(SCRAM, first, 50)
    with tempfile.TemporaryDirectory() as checkpoint:
        frame = source(spark().readStream, SCRAM, first, startingOffsets="earliest").selectExpr("value")
        sink = frame.writeStream.format("kafka").options(**options(SCRAM)).option("topic", second)
        query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        check.equal("the query ended", query.awaitTermination(60), True)
    got = sorted(values_in(ADMIN, second), key=int)
    check.equal("values", got, [str(number) for number in range(50)])


def wrong_password(check: Check) -> None:
    topic = topic_of(check, "topic", "READ", "WRITE")
    wrong = replace(SCRAM, password="wrong")
    shown = refusal(lambda: values_in(wrong, topic))
    check.equal(f"what reading shows: {shown}", "invalid credentials" in shown, True)


def no_right(check: Check) -> None:
    topic = topic_of(check, "topic")
    for what, call in (("writing", lambda: write(SCRAM, topic, 1)), ("reading", lambda: values_in(SCRAM, topic))):
        shown = refusal(call)
        check.equal(f"what {what} shows: {shown}", "TopicAuthorizationException" in shown, True)


CHECKS = [batch, stream, wrong_password, no_right]
