"""Versioned JSON document in the metadata store, changed as a whole: configs of brokers, quotas, credentials."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.checked_json import object_of, parse

ContentT = TypeVar("ContentT")

LARGEST_BYTES: Final = 1 << 30
"""More than the rules of a hundred thousand clients."""


class VersionedDocument(Generic[ContentT]):
    """The document under one key of the store.

    content: the newest content that was read or written; another object after each change, also of another node.
    read:  makes the content of the decoded JSON, or of None before the first write.
    write: makes a JSON value of the content.
    may_use_reserve: true for changes by which an operator frees a full disk, or keeps clients from filling it.
    """

    def __init__(
        self,
        store: MetadataStore,
        key: str,
        *,
        read: Callable[[Any], ContentT],
        write: Callable[[ContentT], Any],
        may_use_reserve: bool = False,
    ) -> None:
        self.content = read(None)
        self._version = 0
        self._may_use_reserve = may_use_reserve
        self._store = store
        self._key = key
        self._read = read
        self._write = write

    async def load(self) -> ContentT:
        """Read the document, unless it is as it was last read or written here. Raises StorageError."""
        await self._load()
        return self.content

    async def change(self, changed: Callable[[ContentT], ContentT | None]) -> ContentT:
        """Write the result of `changed` for the stored content; its None leaves the document as it is.

        Calls `changed` again when another node has written meanwhile. Raises StorageError.
        """
        while True:
            version = await self._load()
            content = changed(self.content)
            if content is None:
                return self.content
            encoded = json.dumps(self._write(content), sort_keys=True).encode()
            if await self._store.compare_and_set(self._key, encoded, version, may_use_reserve=self._may_use_reserve):
                self._know(content, version + 1)
                return content

    async def _load(self) -> int:
        encoded, version = await self._store.read_versioned(self._key)
        if version == self._version:
            return version
        try:
            self._know(self._read(None if encoded is None else parse(encoded, most_bytes=LARGEST_BYTES)), version)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise StorageError(f"{self._key!r} in the metadata store cannot be read: {error}") from error
        return version

    def _know(self, content: ContentT, version: int) -> None:
        """Take a content over, unless a later one has been read while the store was written."""
        if version >= self._version:
            self.content, self._version = content, version


def read_settings_by_name(content: Any) -> dict[str, Mapping[str, str]]:
    """The settings in a document, by the name of their broker or group. Raises JsonError."""
    if content is None:
        return {}
    fields = object_of(content)
    return {name: fields.object(name).texts_by_name() for name in fields}
