"""The decision topic: made if it is missing, read up to what is committed, written by the driver's transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from fencepost.spark.decisions import Latest, latest_of
from fencepost.spark.names import aborted_key, decision_key, done_key
from fencepost.spark.options import SinkOptions

T = TypeVar("T")

TIMEOUT_S = 30.0
PAUSE_S = 0.05
FETCH_WAIT_MS = 5
UNKNOWN_TOPIC = ("_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART")
LEADER_MOVES = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH")
TAIL = 64
"""How many offsets are read at first: a batch takes four of them."""

TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    # Check-back compares these with the beginning of transactions, which a broker's clock gives, too.
    "message.timestamp.type": "LogAppendTime",
}


class DecisionReader:
    """Reads what sinks have decided. It keeps its connection, and fetches only while it reads."""

    def __init__(self, options: SinkOptions) -> None:
        import confluent_kafka

        self._options = options
        self._consumer = confluent_kafka.Consumer(
            {
                **options.connection(),
                "group.id": "fencepost-sink",  # required, and not used: nothing is subscribed or committed
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def latest(self, sink: str, *, must_exist: bool, timeout_s: float = TIMEOUT_S) -> Latest:
        """Read what a sink has decided last. must_exist: whether to wait for an unknown topic; else it says nothing.

        Raises KafkaException, and TimeoutError if no broker answers.
        """
        topic = self._options.decision_topic(sink)
        keys = (decision_key(sink), done_key(sink), aborted_key(sink))
        bounds = _bounds(self._consumer, topic, timeout_s)
        if must_exist and bounds is None:
            bounds = until_known(lambda: _bounds(self._consumer, topic, timeout_s), topic, timeout_s)
        if bounds is None:
            return Latest()
        low, high = bounds
        tail = TAIL
        try:
            while True:
                start = max(low, high - tail)
                found = _read_from(self._consumer, topic, start, timeout_s)
                if start == low or decision_key(sink) in found:
                    return latest_of(found, keys)
                tail *= 16
        finally:
            self._consumer.unassign()


def _read_from(consumer: Any, topic: str, start: int, timeout_s: float) -> dict[str, bytes]:
    """The last value of each key, from an offset to the last stable one."""
    import confluent_kafka

    consumer.assign([confluent_kafka.TopicPartition(topic, 0, start)])
    found: dict[str, bytes] = {}
    give_up_at_s = time.monotonic() + timeout_s
    while time.monotonic() < give_up_at_s:
        message = consumer.poll(PAUSE_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            key = (message.key() or b"").decode(errors="replace")
            if message.value() is None:
                found.pop(key, None)
            else:
                found[key] = message.value()
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001  # so is it named
            return found
        elif not error.retriable():
            raise confluent_kafka.KafkaException(error)
    raise TimeoutError(f"the decisions in {topic} were not read within {timeout_s:g} s")


def _bounds(consumer: Any, topic: str, timeout_s: float) -> tuple[int, int] | None:
    """The log start offset and the last stable offset; None if there is no such topic."""
    import confluent_kafka

    partition = confluent_kafka.TopicPartition(topic, 0)
    give_up_at_s = time.monotonic() + timeout_s
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=timeout_s)
        except confluent_kafka.KafkaException as error:
            name = error.args[0].name()
            if name in UNKNOWN_TOPIC:
                return None
            # The client does not repeat this request by itself, but has asked who leads the topic now.
            if name not in LEADER_MOVES or time.monotonic() > give_up_at_s:
                raise
            time.sleep(PAUSE_S)
        else:
            return int(low), int(high)


def ensure_topic(options: SinkOptions, topic: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Make the decision topic if it is missing. Raises ValueError for one that is not compacted, KafkaException."""
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

    admin = AdminClient(options.connection())
    partitions = _partitions(admin, topic, timeout_s)
    if partitions is None:
        try:
            admin.create_topics([NewTopic(topic, 1, config=TOPIC_CONFIG)])[topic].result(timeout_s)
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
        partitions = until_known(lambda: _partitions(admin, topic, timeout_s), topic, timeout_s)
    if partitions != 1:
        raise ValueError(f"the decision topic {topic} has {partitions} partitions; it needs exactly 1")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    policy = admin.describe_configs([resource])[resource].result(timeout_s)["cleanup.policy"].value
    if policy != "compact":
        raise ValueError(
            f"the decision topic {topic} has cleanup.policy={policy}, so decisions would be lost: set it to compact"
        )


def _partitions(admin: Any, topic: str, timeout_s: float) -> int | None:
    """How many partitions a topic has; None if it does not exist. The request does not create it."""
    import confluent_kafka

    try:
        asked = admin.describe_topics(confluent_kafka.TopicCollection([topic]))
        return len(asked[topic].result(timeout_s).partitions)
    except confluent_kafka.KafkaException as error:
        if error.args[0].name() in UNKNOWN_TOPIC:
            return None
        raise


def until_known(ask: Callable[[], T | None], topic: str, timeout_s: float) -> T:
    """Ask until a topic is known, which nodes are one after the other. Raises TimeoutError."""
    give_up_at_s = time.monotonic() + timeout_s
    while time.monotonic() < give_up_at_s:
        found = ask()
        if found is not None:
            return found
        time.sleep(PAUSE_S)
    raise TimeoutError(f"no broker knows the topic {topic} within {timeout_s:g} s")
