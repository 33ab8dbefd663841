"""A sink of Spark without Spark: its tasks prepare their transactions, and its driver dies after the decision."""

from __future__ import annotations

from typing import Any

from fencepost.spark.decisions import Batch, Decision
from fencepost.spark.names import draw_nonce, is_one_off, task_id
from fencepost.spark.options import SinkOptions
from fencepost.spark.session import Session
from fencepost.two_phase import Token, confluent_producer, prepare

PATIENCE_S = 60.0
QUERY = "8cd0ef86-096d-4b7d-8237-fcb86ebd341a"
_stay_away: list[Any] = []  # as the producers of processes that hang


def prepared_tasks(bootstrap: str, sink: str, topic: str, count: int, *, timeout_ms: int = 900_000) -> list[Token]:
    """The tokens of tasks that have written a record each, and prepared its transaction: `SINK-NUMBER`."""
    nonce = draw_nonce()
    tokens = []
    for number in range(count):
        producer = confluent_producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": task_id(sink, nonce, number, number),
                "transaction.timeout.ms": timeout_ms,
                "delivery.timeout.ms": timeout_ms - 1,
                "log_level": 0,
            }
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, f"{sink}-{number}", partition=0)
        tokens.append(prepare(producer))
        _stay_away.append(producer)
    return tokens


def decide(bootstrap: str, sink: str, tokens: list[Token], *, topic: str | None = None, number: int = 1) -> Decision:
    """Commit a decision, as the sink's driver does, which dies then. topic: the option `decision.topic`."""
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.log_level": "0", "topic": "out"}
    if topic is not None:
        given["decision.topic"] = topic
    if is_one_off(sink):
        options, batch = SinkOptions.read(given).one_off(), Batch(None, sink)
    else:
        options, batch = SinkOptions.read({**given, "sink": sink}), Batch(QUERY, number)
    session = Session(options, sink)
    decision = Decision(draw_nonce(), batch, tuple(tokens), len(tokens))
    try:
        session.decide(decision, check=list)
    finally:
        session.close()
    return decision
