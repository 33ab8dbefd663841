"""Waiting until readers of committed records see all that has been decided.

The end of a transaction is confirmed once it is decided; its markers follow, to all partitions, some on other nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.support.conditions import until

LONGEST_TRANSACTION_S = 90.0
"""One that its client has left open is aborted after a minute, by default."""


def until_stable(client: Mapping[str, Any], topic: str, partition_count: int) -> None:
    """Wait until no transaction is open, or being ended, in a topic that nobody writes to. client: its settings."""
    admin = AdminClient({**client, "log_level": 0})
    places = [TopicPartition(topic, partition) for partition in range(partition_count)]
    until(lambda: _is_stable(admin, places), timeout_s=LONGEST_TRANSACTION_S)


def _is_stable(admin: AdminClient, places: list[TopicPartition]) -> bool:
    try:
        return _ends(admin, places, IsolationLevel.READ_UNCOMMITTED) == _ends(
            admin, places, IsolationLevel.READ_COMMITTED
        )
    except KafkaException:
        return False  # some have no leader at the moment


def _ends(admin: AdminClient, places: list[TopicPartition], isolation_level: IsolationLevel) -> list[int]:
    found = admin.list_offsets({place: OffsetSpec.latest() for place in places}, isolation_level=isolation_level)
    return [found[place].result().offset for place in places]
