"""What Apache Kafka 4.4 has and the other implementations have not: kafka-python and kio know Apache Kafka 4.3.

`tests/integration/test_kafkas_definitions.py` compares these with Apache Kafka's own definitions.
"""

from __future__ import annotations

from typing import Final

HIGHEST_OF_OTHERS: Final[dict[str, int]] = {"ApiVersions": 4, "DeleteGroups": 2}
"""The highest version that the others know, of an API of which Apache Kafka 4.4 has a newer one."""

UNKNOWN_TO_OTHERS: Final[frozenset[str]] = frozenset({"UnregisterController"})
"""APIs that only Apache Kafka 4.4 has."""

NAMES_OF_OTHERS: Final[dict[tuple[str, str], str]] = {}
"""Names that fields have at the others, by message and by our name, which is Apache Kafka 4.4's."""

HIGHEST_ERROR_OF_OTHERS: Final = 133


def do_others_know(api_name: str, version: int) -> bool:
    return api_name not in UNKNOWN_TO_OTHERS and version <= HIGHEST_OF_OTHERS.get(api_name, version)
