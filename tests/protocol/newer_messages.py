"""What Apache Kafka 4.4 has and the other implementations have not.

Those are kafka-python and kio, which have the messages of 4.3.

`tests/integration/test_kafkas_definitions.py` compares these with Apache Kafka's own definitions.
"""

from __future__ import annotations

from typing import Final

HIGHEST_OF_OTHERS: Final[dict[str, int]] = {
    "ApiVersions": 4,
    "DeleteGroups": 2,
    "TxnOffsetCommit": 5,
    "StreamsGroupHeartbeat": 0,
    "StreamsGroupDescribe": 0,
}
"""The highest version that the others know, of an API of which Apache Kafka 4.4 has a newer one."""

UNKNOWN_TO_OTHERS: Final[frozenset[str]] = frozenset({"UnregisterController", "StreamsGroupTopologyDescriptionUpdate"})
"""APIs that only Apache Kafka 4.4 has."""

NAMES_OF_OTHERS: Final[dict[tuple[str, str], str]] = {
    ("TxnOffsetCommitRequest", "generation_id_or_member_epoch"): "generation_id",
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag_legacy"): "acceptable_recovery_lag",
}
"""Names that fields have at the others, by message and by our name, which is Apache Kafka 4.4's."""

HIGHEST_ERROR_OF_OTHERS: Final = 133


def highest_of_others(api_name: str) -> int:
    """The highest version that the others know; -1 of an API that they do not know."""
    return -1 if api_name in UNKNOWN_TO_OTHERS else HIGHEST_OF_OTHERS.get(api_name, 0x7FFF)
