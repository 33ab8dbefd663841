"""The decision topic: created if it is missing, read up to the last stable offset, written in transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from fencepost.spark.decisions import Decision, Latest, latest_of
from fencepost.spark.names import decision_key, is_one_off, ledger_keys
from fencepost.spark.options import SinkOptions

T = TypeVar("T")

TIMEOUT_S = 30.0
PAUSE_S = 0.05
FETCH_WAIT_MS = 5
UNKNOWN_TOPIC = ("_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART")
LEADER_MOVES = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
)
OPEN_TIMEOUT_S = 75.0
"""Maximum wait for decisions of other sinks that are being written: a driver aborts its own after 70 s."""
TAIL = 64
"""How many offsets are read at first: a batch takes four of them."""
JOBS_TAIL = 10_000
"""How many offsets are searched for decisions of batch jobs that died: those of 2,500 jobs."""

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""A Uuid of zeros, from a broker that gives topics no ids."""

AS_KAFKA_WRITES_IDS = str.maketrans("+/", "-_")

TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    # Check-back compares these with the beginning of transactions, which a broker's clock gives, too.
    "message.timestamp.type": "LogAppendTime",
}


class DecisionsHidden(Exception):  # noqa: N818  # callers handle it
    """A transaction stays open in the decision topic and hides decisions after its beginning."""


class DecisionReader:
    """Reader of the decisions of sinks. It keeps its connection, and fetches only while it reads."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._consumer = self._new_consumer("read_committed")

    def _new_consumer(self, isolation: str) -> Any:
        import confluent_kafka

        return confluent_kafka.Consumer(
            {
                **self._options.connection(),
                "group.id": "fencepost-sink",  # required, and not used: nothing is subscribed or committed
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def latest(self, sink: str, *, is_final: bool, timeout_s: float = TIMEOUT_S) -> Latest:
        """Read the latest decision of a sink, with its marks.

        is_final: whether the result must have all decisions of the time before the call. If so, this waits for open
        transactions and for a topic that does not exist yet; if not, it returns an empty result for such a topic.
        Raises KafkaException, TimeoutError if no broker answers, and DecisionsHidden.
        """
        topic = self._options.decision_topic(sink)
        keys = ledger_keys(sink)
        bounds = self._final_bounds(topic, timeout_s) if is_final else _bounds(self._consumer, topic, timeout_s)
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

    def _final_bounds(self, topic: str, timeout_s: float) -> tuple[int, int]:
        """Return `_bounds` once the last stable offset has reached the high watermark of the beginning."""
        uncommitted = self._new_consumer("read_uncommitted")
        try:
            _, high_watermark = until_known(lambda: _bounds(uncommitted, topic, timeout_s), topic, timeout_s)
        finally:
            uncommitted.close()
        give_up_at_s = time.monotonic() + OPEN_TIMEOUT_S
        while True:
            low, stable = until_known(lambda: _bounds(self._consumer, topic, timeout_s), topic, timeout_s)
            if stable >= high_watermark:
                return low, stable
            if time.monotonic() > give_up_at_s:
                raise DecisionsHidden(
                    f"the decisions in {topic} can be read up to {stable}, and not to {high_watermark}"
                )
            time.sleep(PAUSE_S)

    def jobs(self, topic: str, timeout_s: float = TIMEOUT_S) -> dict[str, Decision]:
        """Read the decisions, by sink, of batch jobs without a sink's name that nobody has marked as done.

        Raises KafkaException, TimeoutError.
        """
        bounds = _bounds(self._consumer, topic, timeout_s)
        if bounds is None:
            return {}
        low, high = bounds
        try:
            found = _read_from(self._consumer, topic, max(low, high - JOBS_TAIL), timeout_s)
        finally:
            self._consumer.unassign()
        jobs = {}
        for key, value in found.items():
            with suppress(ValueError):  # others write to the topic as well
                if is_one_off(key):
                    jobs[key] = Decision.parse(value)
        return jobs


def _read_from(consumer: Any, topic: str, start: int, timeout_s: float) -> dict[str, bytes]:
    """Read the last value of each key, from an offset to the last stable one."""
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
        elif not error.retriable() and error.name() != "GROUP_AUTHORIZATION_FAILED":  # no group is used
            raise confluent_kafka.KafkaException(error)
    raise TimeoutError(f"the decisions in {topic} were not read within {timeout_s:g} s")


def _bounds(consumer: Any, topic: str, timeout_s: float) -> tuple[int, int] | None:
    """Return the log start offset and the last stable offset; None if the topic does not exist."""
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
            # The client does not retry this request by itself, but it has asked for the topic's leader now.
            if name not in LEADER_MOVES or time.monotonic() > give_up_at_s:
                raise
            time.sleep(PAUSE_S)
        else:
            return int(low), int(high)


def ensure_topic(options: SinkOptions, topic: str, *, timeout_s: float = TIMEOUT_S) -> str | None:
    """Create the decision topic if it is missing, and return its id; None if the brokers give topics no ids.

    Raises ValueError for one that is not compacted, KafkaException.
    """
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

    admin = AdminClient(options.connection())
    described = _described(admin, topic, timeout_s)
    if described is None:
        try:
            admin.create_topics([NewTopic(topic, 1, config=TOPIC_CONFIG)])[topic].result(timeout_s)
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
        described = until_known(lambda: _described(admin, topic, timeout_s), topic, timeout_s)
    if len(described.partitions) != 1:
        raise ValueError(f"the decision topic {topic} has {len(described.partitions)} partitions; it needs exactly 1")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    policy = admin.describe_configs([resource])[resource].result(timeout_s)["cleanup.policy"].value
    if policy != "compact":
        raise ValueError(
            f"the decision topic {topic} has cleanup.policy={policy}, so decisions would be lost: set it to compact"
        )
    topic_id = str(described.topic_id)
    return None if topic_id == NO_ID else topic_id.translate(AS_KAFKA_WRITES_IDS)


def _described(admin: Any, topic: str, timeout_s: float) -> Any | None:
    """Return confluent-kafka's TopicDescription; None if the topic does not exist. The request does not create it."""
    import confluent_kafka

    try:
        asked = admin.describe_topics(confluent_kafka.TopicCollection([topic]))
        return asked[topic].result(timeout_s)
    except confluent_kafka.KafkaException as error:
        if error.args[0].name() in UNKNOWN_TOPIC:
            return None
        raise


def until_known(ask: Callable[[], T | None], topic: str, timeout_s: float) -> T:
    """Retry until a topic exists: nodes learn of it one after the other. Raises TimeoutError."""
    give_up_at_s = time.monotonic() + timeout_s
    while time.monotonic() < give_up_at_s:
        found = ask()
        if found is not None:
            return found
        time.sleep(PAUSE_S)
    raise TimeoutError(f"no broker knows the topic {topic} within {timeout_s:g} s")
