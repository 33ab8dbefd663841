"""Metadata store in memory, for simulation and tests; nothing is written to the disk."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Self

from fencepost.broker.kernel.random_ids import base64_uuid
from fencepost.broker.metadata.image import TopicMetadata, collision_key


class InMemoryMetadataStore:
    """A store that lives as long as the object: reopening finds everything as it was, like a store on disk.

    Nodes of one cluster either share the object, or have one each, made by `for_another_node`.
    """

    def __init__(self, cluster_id: str | None = None) -> None:
        self.on_topics_changed: list[Callable[[], None]] = []
        self.on_documents_changed: list[Callable[[], None]] = []
        self._cluster_id = cluster_id or base64_uuid()
        self._topics: dict[str, TopicMetadata] = {}
        self._deletions: dict[bytes, TopicMetadata] = {}
        self._versioned: dict[str, tuple[bytes, int]] = {}
        self._handles = [self]

    def for_another_node(self) -> Self:
        """Return a store of the same metadata with its own callbacks: those of a crashed node can be dropped by
        themselves."""
        handle = copy.copy(self)
        handle.on_topics_changed = []
        handle.on_documents_changed = []
        self._handles.append(handle)
        return handle

    def _topics_changed(self) -> None:
        for handle in self._handles:
            for callback in list(handle.on_topics_changed):
                callback()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def cluster_id(self) -> str:
        return self._cluster_id

    async def follow(self) -> None:
        """Changes are announced in their own step."""

    async def load_topics(self) -> list[TopicMetadata]:
        return list(self._topics.values())

    async def load_deletions(self) -> list[TopicMetadata]:
        return list(self._deletions.values())

    async def create_topic(self, topic: TopicMetadata) -> bool:
        if any(collision_key(name) == collision_key(topic.name) for name in self._topics):
            return False
        self._topics[topic.name] = topic
        self._topics_changed()
        return True

    async def delete_topic(self, name: str, topic_id: bytes) -> bool:
        topic = self._topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            return False
        del self._topics[name]
        self._deletions[topic.topic_id] = topic
        self._topics_changed()
        return True

    async def finish_deletion(self, topic_id: bytes) -> None:
        self._deletions.pop(topic_id, None)

    async def set_partition_count(self, name: str, partition_count: int, *, topic_id: bytes, before: int) -> bool:
        topic = self._topics.get(name)
        if topic is None or (topic.topic_id, topic.partition_count) != (topic_id, before):
            return False
        self._topics[name] = dataclasses.replace(topic, partition_count=partition_count)
        self._topics_changed()
        return True

    async def set_topic_configs(
        self, name: str, configs: Mapping[str, str], *, topic_id: bytes, before: Mapping[str, str]
    ) -> bool:
        topic = self._topics.get(name)
        if topic is None or topic.topic_id != topic_id or topic.configs != before:
            return False
        self._topics[name] = dataclasses.replace(topic, configs=MappingProxyType(dict(configs)))
        self._topics_changed()
        return True

    async def read_versioned(self, key: str) -> tuple[bytes | None, int]:
        return self._versioned.get(key, (None, 0))

    async def compare_and_set(
        self, key: str, value: bytes, expected_version: int, *, may_use_reserve: bool = False
    ) -> bool:
        _, version = self._versioned.get(key, (None, 0))
        if version != expected_version:
            return False
        self._versioned[key] = (value, version + 1)
        for handle in self._handles:
            if handle is not self:
                for callback in list(handle.on_documents_changed):
                    callback()
        return True
