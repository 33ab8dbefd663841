"""The seam to where metadata is kept: topics, their configs, and versioned values such as blocks of producer ids."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from typing import Protocol

from fencepost.broker.metadata.image import TopicMetadata


class MetadataStore(Protocol):
    """Durable when a call returns. Every call may raise StorageError.

    on_topics_changed: called, soon after, when another node that has the same metadata may have changed topics.

    A topic that is deleted stays known as a deletion until its partitions' files are gone for sure, so that a crash
    leaves nothing behind that a new topic of the same name could take for its own.
    """

    on_topics_changed: list[Callable[[], None]]

    async def open(self) -> None:
        """Make the store ready; the first time, this founds the cluster and picks its id."""
        ...

    async def close(self) -> None: ...

    async def cluster_id(self) -> str:
        """22 characters of URL-safe base64, the same for ever."""
        ...

    async def load_topics(self) -> list[TopicMetadata]: ...

    async def load_deletions(self) -> list[TopicMetadata]:
        """Topics whose deletion was recorded but not yet reported as finished."""
        ...

    async def create_topic(self, topic: TopicMetadata) -> bool:
        """Record a new topic; False when the name is taken."""
        ...

    async def delete_topic(self, name: str) -> bool:
        """Turn a topic into a deletion; False when there is no such topic."""
        ...

    async def finish_deletion(self, topic_id: bytes) -> None:
        """Forget a deletion; its files are gone."""
        ...

    async def set_partition_count(self, name: str, partition_count: int) -> bool:
        """False when there is no such topic."""
        ...

    async def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> bool:
        """Replace all configs of a topic; False when there is no such topic."""
        ...

    async def read_versioned(self, key: str) -> tuple[bytes | None, int]:
        """A value and its version; (None, 0) when it was never written."""
        ...

    async def compare_and_set(
        self, key: str, value: bytes, expected_version: int, *, may_use_reserve: bool = False
    ) -> bool:
        """Write a value if its version is still the expected one, which raises the version by 1; False when it is
        not.

        may_use_reserve: for what lets space be freed, where the disk is full.
        """
        ...


def new_cluster_id() -> str:
    """A random id as Kafka shows one: 16 bytes in URL-safe base64 without padding, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode("ascii")
        # A leading dash reads as an option on command lines; Kafka's Uuid.randomUuid leaves such ids out as well.
        if not text.startswith("-"):
            return text
