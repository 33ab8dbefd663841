"""The seam of the metadata store: topics, their configs, and versioned values such as blocks of producer ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from fencepost.broker.metadata.image import TopicMetadata


class MetadataStore(Protocol):
    """A store of metadata. A change is durable when its call returns. Every call may raise StorageError.

    on_topics_changed:    called shortly after another node with the same metadata may have changed topics.
    on_documents_changed: called shortly after another node may have changed versioned values.

    A deleted topic stays recorded as a deletion until its partitions' files are certainly gone, so that a new topic of
    the same name cannot take over files after a crash.
    """

    on_topics_changed: list[Callable[[], None]]
    on_documents_changed: list[Callable[[], None]]

    async def open(self) -> None:
        """Make the store ready; the first call founds the cluster and picks its id."""
        ...

    async def close(self) -> None: ...

    async def cluster_id(self) -> str:
        """The cluster's id: 22 characters of URL-safe base64 that never change."""
        ...

    async def follow(self) -> None:
        """Poll for changes of other nodes now, and call the hooks, in a store that otherwise polls at intervals."""
        ...

    async def load_topics(self) -> list[TopicMetadata]: ...

    async def load_deletions(self) -> list[TopicMetadata]:
        """Topics with a recorded deletion that is not finished."""
        ...

    async def create_topic(self, topic: TopicMetadata) -> bool:
        """Record a new topic; return False if the name is taken, or if nodes share the metadata, one that collides with
        it: "." and "_" count as the same."""
        ...

    async def delete_topic(self, name: str, topic_id: bytes) -> bool:
        """Turn a topic into a deletion; return False when there is no topic with this name and id."""
        ...

    async def finish_deletion(self, topic_id: bytes) -> None:
        """Remove a deletion whose files are gone."""
        ...

    async def set_partition_count(self, name: str, partition_count: int, *, topic_id: bytes, before: int) -> bool:
        """Change the number of partitions; return False when the topic with this id does not have that number."""
        ...

    async def set_topic_configs(
        self, name: str, configs: Mapping[str, str], *, topic_id: bytes, before: Mapping[str, str]
    ) -> bool:
        """Replace all configs of a topic; return False when there is no topic with this id and these configs."""
        ...

    async def read_versioned(self, key: str) -> tuple[bytes | None, int]:
        """Return a value and its version; (None, 0) when it was never written."""
        ...

    async def compare_and_set(
        self, key: str, value: bytes, expected_version: int, *, may_use_reserve: bool = False
    ) -> bool:
        """Write a value if its version is the expected one, and raise the version by 1; else return False.

        may_use_reserve: true for changes that free space on a full disk.
        """
        ...
