"""Options of the sink, and the properties of its clients that follow from them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from fencepost.spark.decisions import Batch, driver_timeout_ms
from fencepost.spark.names import ONE_OFF, default_decision_topic, require_sink_name

PREFIX = "kafka."
CONNECTION = (
    "bootstrap.servers",
    "security.",
    "sasl.",
    "ssl.",
    "socket.",
    "client.id",
    "client.dns.",
    "broker.address.",
)
DELIVERY_TIMEOUT_MS = 120_000
TRANSACTION_TIMEOUT_MS = 900_000
"""A broker's default limit (transaction.max.timeout.ms)."""

LONGEST_REASON = 1_000

RESERVED = {
    "transactional.id": "the sink gives each attempt of a task an id of its own",
    "enable.idempotence": "transactions need it",
    "acks": "transactions need all",
    "key.serializer": "keys are bytes or strings",
    "value.serializer": "values are bytes or strings",
}
JAAS_LOGIN = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


class Mode(Enum):
    """How the records of a batch are written."""

    PREPARED = "prepared"  # by the tasks, in a transaction each
    DRIVER = "driver"  # by the driver, in one transaction


@dataclass(frozen=True)
class SinkOptions:
    """A user's options.

    topic: topic of all records; None if the rows name theirs. sink: None for the default, the id of the query.
    client: properties of librdkafka. checkpoint: location of the query's id. reset, accept: ids of decisions.
    reason: a user's reason for them.
    is_one_off: whether the sink's name is that of one batch job, so that it has no earlier decision.
    batch: the batch of a query's `foreachBatch` that a batch job writes; None if it is a job of its own.
    """

    topic: str | None
    sink: str | None
    named_decision_topic: str | None
    mode: Mode
    client: Mapping[str, str]
    checkpoint: str | None = None
    reset: str | None = None
    accept: str | None = None
    reason: str = ""
    is_one_off: bool = False
    batch: Batch | None = None

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SinkOptions:
        """Read the arguments of `DataStreamWriter.option`. Raises ValueError, in words for the user."""
        options = {name.lower(): value for name, value in options.items()}
        client = client_properties(
            {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
        )
        kafka_python_options(client)  # refuses properties without a counterpart now, not at the first commit
        sink = options.get("sink")
        mode = options.get("mode", Mode.PREPARED.value).lower()
        if mode not in {known.value for known in Mode}:
            raise ValueError(f"option 'mode' is 'prepared' or 'driver'; got {mode!r}")
        return cls(
            topic=options.get("topic"),
            sink=None if sink is None else require_sink_name(sink),
            named_decision_topic=options.get("decision.topic"),
            mode=Mode(mode),
            client=client,
            checkpoint=options.get("checkpointlocation"),
            reset=options.get("sink.reset"),
            accept=options.get("sink.accept"),
            reason=options.get("sink.reason", "")[:LONGEST_REASON],
            batch=_batch(options.get("batch"), sink),
        )

    def one_off(self) -> SinkOptions:
        """Return these options for a batch job that names no sink: all such jobs share a decision topic."""
        return replace(
            self, is_one_off=True, named_decision_topic=self.named_decision_topic or default_decision_topic(ONE_OFF)
        )

    def decision_topic(self, sink: str) -> str:
        """Return the topic of the sink's decisions. Raises ValueError if its records would go there, too."""
        topic = self.named_decision_topic or default_decision_topic(sink)
        if topic == self.topic:
            raise ValueError(
                f"the topic {topic} has the decisions of the sink {sink!r}, and keeps only the last record of a key: "
                "write to another one"
            )
        return topic

    @property
    def bootstrap_servers(self) -> str:
        return self.client["bootstrap.servers"]

    @property
    def delivery_timeout_s(self) -> float:
        return int(self.client["delivery.timeout.ms"]) / 1000

    @property
    def completion_timeout_s(self) -> float:
        """Time limit of completing a decided batch: the transactions' time-out, at most its default."""
        return min(int(self.client["transaction.timeout.ms"]), TRANSACTION_TIMEOUT_MS) / 1000

    @property
    def driver_timeouts(self) -> dict[str, str]:
        """Properties of a driver's producer that only decides: time ends its transactions before those of tasks, and
        before other drivers stop waiting for them.
        """
        timeout_ms = driver_timeout_ms(int(self.client["transaction.timeout.ms"]))
        most = dict.fromkeys(("transaction.timeout.ms", "delivery.timeout.ms"), timeout_ms)
        if "socket.timeout.ms" in self.client:
            most["socket.timeout.ms"] = timeout_ms - 100  # librdkafka refuses longer ones
        return {name: str(min(most_ms, int(self.client[name]))) for name, most_ms in most.items()}

    def connection(self) -> dict[str, str]:
        """Return the properties of a client that does not produce."""
        return {name: value for name, value in self.client.items() if name.startswith(CONNECTION)}

    def coordinator_options(self) -> dict[str, Any]:
        """Return the same connection, as options of kafka-python."""
        return kafka_python_options(self.client)


def _batch(number: str | None, sink: str | None) -> Batch | None:
    """Return the batch of a `foreachBatch`: Spark gives its number, and the sink's name stands for the query."""
    if number is None:
        return None
    if sink is None:
        raise ValueError("option 'batch' needs option 'sink': a name that the query keeps when it is started again")
    if not number.isdecimal():
        raise ValueError(f"option 'batch' is the number that foreachBatch gives; got {number!r}")
    return Batch(sink, int(number))


def client_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return properties of librdkafka, from those that a user gives for Kafka's Java client or for librdkafka itself.

    Both have mostly the same names. The exceptions for TLS and SASL are translated. Raises ValueError.
    """
    if not given.get("bootstrap.servers"):
        raise ValueError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka producer")
    for name, reason in RESERVED.items():
        if name in given:
            raise ValueError(f"Kafka option '{name}' is not supported: {reason}")
    properties = dict(given)
    _translate_jaas(properties)
    _translate_stores(properties)
    defaults = {
        "partitioner": "murmur2_random",  # that of Java: the same key goes where Spark's own sink puts it
        "delivery.timeout.ms": str(DELIVERY_TIMEOUT_MS),
        "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
    }
    timeout_ms = properties.get("transaction.timeout.ms", "")
    if timeout_ms.isdecimal():  # librdkafka refuses a longer one
        defaults["delivery.timeout.ms"] = str(min(DELIVERY_TIMEOUT_MS, int(timeout_ms)))
    return {**defaults, **properties}


def _translate_jaas(properties: dict[str, str]) -> None:
    """Replace Java's `sasl.jaas.config` by librdkafka's properties for the user and the password."""
    jaas = properties.pop("sasl.jaas.config", None)
    if jaas is None:
        return
    login = dict(JAAS_LOGIN.findall(jaas))
    if "username" not in login or "password" not in login:
        raise ValueError(
            "Kafka option 'sasl.jaas.config' is understood with username and password, for PLAIN and SCRAM; for other "
            "mechanisms give librdkafka's properties"
        )
    for name, key in (("sasl.username", "username"), ("sasl.password", "password")):
        properties[name] = re.sub(r"\\(.)", r"\1", login[key])


def _translate_stores(properties: dict[str, str]) -> None:
    """Replace Java's stores of keys and certificates. Raises ValueError for JKS, a format of Java's own."""
    location = properties.pop("ssl.truststore.location", None)
    kind = properties.pop("ssl.truststore.type", "JKS").upper()
    properties.pop("ssl.truststore.password", None)
    certificates = properties.pop("ssl.truststore.certificates", None)
    if certificates is not None:
        properties["ssl.ca.pem"] = certificates
    if location is not None:
        if kind != "PEM":
            raise ValueError(
                f"the truststore is {kind}: give the certificates as PEM, in 'kafka.ssl.ca.location', or with "
                "'kafka.ssl.truststore.type' = 'PEM'"
            )
        properties["ssl.ca.location"] = location
    location = properties.pop("ssl.keystore.location", None)
    kind = properties.pop("ssl.keystore.type", "JKS").upper()
    if location is not None:
        if kind == "PEM":
            properties["ssl.certificate.location"] = properties["ssl.key.location"] = location
        elif kind == "PKCS12":
            properties["ssl.keystore.location"] = location
        else:
            raise ValueError(
                f"the keystore is {kind}: give it as PEM or PKCS12 and say so in 'kafka.ssl.keystore.type', or give "
                "'kafka.ssl.certificate.location' and 'kafka.ssl.key.location'"
            )
    if properties.get("ssl.endpoint.identification.algorithm") == "":
        properties["ssl.endpoint.identification.algorithm"] = "none"


def kafka_python_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return librdkafka's connection properties as options of kafka-python. Raises ValueError for unsupported ones."""
    options: dict[str, Any] = {"security_protocol": properties.get("security.protocol", "PLAINTEXT").upper()}
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms"))
    if options["security_protocol"].startswith("SASL"):
        if mechanism not in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}:
            raise ValueError(f"kafka.sasl.mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; got {mechanism!r}")
        options["sasl_mechanism"] = mechanism
        options["sasl_plain_username"] = properties.get("sasl.username", "")
        options["sasl_plain_password"] = properties.get("sasl.password", "")
    if options["security_protocol"].endswith("SSL"):
        for theirs, ours in (
            ("ssl_cafile", "ssl.ca.location"),
            ("ssl_certfile", "ssl.certificate.location"),
            ("ssl_keyfile", "ssl.key.location"),
            ("ssl_password", "ssl.key.password"),
        ):
            if ours in properties:
                options[theirs] = properties[ours]
        options["ssl_check_hostname"] = properties.get("ssl.endpoint.identification.algorithm") != "none"
    return options
