"""Names of Kafka's APIs and errors as tests write them, and where each API names topics and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any, Final, NamedTuple

from fencepost.broker.kernel.topic_partition import (
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import FAMILIES
from fencepost.protocol.schema import ZERO_UUID
from fencepost.testing.errors import MisuseError, hint

API_NAMES: Final = {int(key): name for key, (_, name) in FAMILIES.items()}
"""By key, `EndTxn` for 26."""

_KEYS: Final = {name.lower(): key for key, name in API_NAMES.items()}

TopicName = Callable[[bytes], str | None]
"""Gives the name of a topic id, where there is one."""


def api_key(api: str | int) -> int:
    """The key of an API: `EndTxn`, `END_TXN`, `ApiKey.END_TXN` or 26. Raises MisuseError."""
    if isinstance(api, int):
        if int(api) in API_NAMES:
            return int(api)
        raise MisuseError(f"there is no API with the key {int(api)}: use a name such as 'EndTxn'")
    key = _KEYS.get(api.replace("_", "").lower())
    if key is None:
        raise MisuseError(f"there is no API {api!r}: {hint(api, API_NAMES.values())}")
    return key


def error_code(error: str | int) -> int:
    """The code of an error: `NOT_LEADER_OR_FOLLOWER` or 6. Raises MisuseError."""
    try:
        return int(ErrorCode(error) if isinstance(error, int) else ErrorCode[error.upper()])
    except ValueError:
        raise MisuseError(f"there is no error {error}: use a name such as 'NOT_LEADER_OR_FOLLOWER'") from None
    except KeyError:
        assert isinstance(error, str)
        raise MisuseError(f"there is no error {error!r}: {hint(error.upper(), ErrorCode.__members__)}") from None


class Places(NamedTuple):
    """The fields in which an API's messages name partitions.

    topics, partitions: the lists of the request. name, number: a topic's name and a partition's number in them.
    answered_topics: the list of the reply.
    """

    topics: str
    name: str
    partitions: str
    number: str
    answered_topics: str


PLACES: Final = {
    ApiKey.PRODUCE: Places("topic_data", "name", "partition_data", "index", "responses"),
    ApiKey.FETCH: Places("topics", "topic", "partitions", "partition", "responses"),
    ApiKey.LIST_OFFSETS: Places("topics", "name", "partitions", "partition_index", "topics"),
    ApiKey.OFFSET_COMMIT: Places("topics", "name", "partitions", "partition_index", "topics"),
    ApiKey.TXN_OFFSET_COMMIT: Places("topics", "name", "partitions", "partition_index", "topics"),
    ApiKey.OFFSET_DELETE: Places("topics", "name", "partitions", "partition_index", "topics"),
    ApiKey.DELETE_RECORDS: Places("topics", "name", "partitions", "partition_index", "topics"),
}
"""The APIs whose reply has one result for each partition, so that a fault may concern one of them."""

NAMED: Final = {
    **{key: (places.topics, places.name, places.partitions, places.number) for key, places in PLACES.items()},
    ApiKey.METADATA: ("topics", "name", None, None),
    ApiKey.CREATE_TOPICS: ("topics", "name", None, None),
    ApiKey.DELETE_TOPICS: ("topics", "name", None, None),
    ApiKey.CREATE_PARTITIONS: ("topics", "name", None, None),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("topics", "topic", "partitions", "partition"),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("v3_and_below_topics", "name", "partitions", None),
    ApiKey.DESCRIBE_PRODUCERS: ("topics", "name", "partition_indexes", None),
}
"""The APIs that name topics: list of topics, name, list of partitions and number."""


_COORDINATED: Final = {
    ApiKey.INIT_PRODUCER_ID: TRANSACTION_STATE_TOPIC,
    ApiKey.ADD_PARTITIONS_TO_TXN: TRANSACTION_STATE_TOPIC,
    ApiKey.ADD_OFFSETS_TO_TXN: TRANSACTION_STATE_TOPIC,
    ApiKey.END_TXN: TRANSACTION_STATE_TOPIC,
    ApiKey.SHARE_FETCH: SHARE_GROUP_STATE_TOPIC,
    ApiKey.SHARE_ACKNOWLEDGE: SHARE_GROUP_STATE_TOPIC,
}
"""The internal topic of a coordinator's records for a request; that of committed offsets for all other APIs."""


def is_written(key: int, named: Iterable[tuple[str, int | None]], topic: str, partition: int) -> bool:
    """Return whether a request writes to a partition. named: the partitions that the request names."""
    if key == ApiKey.PRODUCE:
        return (topic, partition) in named
    return topic == _COORDINATED.get(ApiKey(key), CONSUMER_OFFSETS_TOPIC)


def named_partitions(key: int, request: Any, topic_name: TopicName) -> Iterator[tuple[str, int | None]]:
    """Yield topic and partition that a request names; None for the partition where it names only the topic."""
    fields = NAMED.get(ApiKey(key))
    if fields is None:
        return
    topics, name, partitions, index = fields
    for topic in getattr(request, topics, None) or ():
        if isinstance(topic, str):
            yield topic, None
            continue
        found = name_of(topic, name, topic_name)
        if found is None:
            continue
        if partitions is None:
            yield found, None
            continue
        for partition in getattr(topic, partitions):
            yield found, partition if index is None else getattr(partition, index)


def name_of(topic: Any, field: str, topic_name: TopicName) -> str | None:
    """The name of a topic in a message, which has its name or its id."""
    name: str | None = getattr(topic, field) or None
    if name is None and getattr(topic, "topic_id", ZERO_UUID) != ZERO_UUID:
        return topic_name(topic.topic_id)
    return name


def with_partitions(key: int, request: Any, wanted: Callable[[str | None, int], bool], topic_name: TopicName) -> Any:
    """A copy of a request with those of its partitions that are wanted."""
    places = PLACES[ApiKey(key)]
    topics = []
    for topic in getattr(request, places.topics) or ():
        name = name_of(topic, places.name, topic_name)
        kept = [
            partition
            for partition in getattr(topic, places.partitions)
            if wanted(name, getattr(partition, places.number))
        ]
        if kept:
            topics.append(_replaced(topic, places.partitions, kept))
    return _replaced(request, places.topics, topics)


def joined(key: int, response: Any, other: Any) -> Any:
    """A copy of a reply that has the partitions of another one, too."""
    places = PLACES[ApiKey(key)]
    return _replaced(
        response,
        places.answered_topics,
        [*getattr(response, places.answered_topics), *getattr(other, places.answered_topics)],
    )


def _replaced(message: Any, field: str, value: Any) -> Any:
    copied = copy(message)
    setattr(copied, field, value)
    return copied
