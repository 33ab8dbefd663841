"""Rights that the sink needs, in the sentence of an error for a missing one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

NEEDED = {
    "TOPIC_AUTHORIZATION_FAILED": "WRITE, READ, CREATE and DESCRIBE_CONFIGS for the decision topic {topic}",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "WRITE for the transactional ids that begin with '{sink}-'",
}


class NoRight(Exception):  # noqa: N818  # callers handle it
    """The query's user lacks a right that the sink needs."""


@contextmanager
def named_rights(sink: str, decision_topic: str) -> Iterator[None]:
    """Raise NoRight for an error of confluent-kafka that means a missing right."""
    import confluent_kafka

    try:
        yield
    except confluent_kafka.KafkaException as error:
        needed = NEEDED.get(error.args[0].name())
        if needed is None:
            raise
        raise NoRight(
            f"the broker denies the sink {sink!r} a right: its user needs "
            f"{needed.format(topic=decision_topic, sink=sink)} ({error.args[0].str()})"
        ) from error
