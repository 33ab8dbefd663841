"""Image of the metadata in memory: all topics, by name and by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition

NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic. topic_id: 16 bytes, new for each creation of the name. configs: only those set on the topic itself."""

    name: str
    topic_id: bytes
    partition_count: int
    configs: Mapping[str, str] = field(default_factory=lambda: NO_CONFIGS)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition) for partition in range(self.partition_count)]


def collision_key(name: str) -> str:
    """The key that two topics' names must not share: Kafka's metric names replace dots by underscores."""
    return name.replace(".", "_")


class MetadataImage:
    """All topics. Only `Topics` changes the image; everything may read it. `version` counts the changes since the
    start."""

    __slots__ = ("_by_id", "_by_name", "_sorted", "version")

    def __init__(self) -> None:
        self.version = 0
        self._by_name: dict[str, TopicMetadata] = {}
        self._by_id: dict[bytes, TopicMetadata] = {}
        self._sorted: tuple[TopicMetadata, ...] | None = ()

    def get(self, name: str) -> TopicMetadata | None:
        return self._by_name.get(name)

    def get_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        return self._by_id.get(topic_id)

    def all(self) -> Iterable[TopicMetadata]:
        """Every topic, sorted by name."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self._by_name.values(), key=lambda topic: topic.name))
        return self._sorted

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def partition_count(self) -> int:
        """The number of partitions of all topics."""
        return sum(topic.partition_count for topic in self._by_name.values())

    def put(self, topic: TopicMetadata) -> None:
        """Add a topic, or replace the one of the same name."""
        previous = self._by_name.get(topic.name)
        if previous is not None:
            del self._by_id[previous.topic_id]
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._sorted = None
        self.version += 1

    def remove(self, name: str) -> None:
        topic = self._by_name.pop(name)
        del self._by_id[topic.topic_id]
        self._sorted = None
        self.version += 1
