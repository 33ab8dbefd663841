"""Documents in the metadata store."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.metadata.document import VersionedDocument
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.storage.disk import StorageError


def document(store: InMemoryMetadataStore) -> VersionedDocument[dict[str, int]]:
    def read(content: Any) -> dict[str, int]:
        return {} if content is None else {name: int(value) for name, value in content.items()}

    return VersionedDocument(store, "counts", read=read, write=dict)


async def test_nothing_written_is_the_empty_content() -> None:
    assert await document(InMemoryMetadataStore()).load() == {}


async def test_a_written_document_is_found_by_the_next_reader() -> None:
    store = InMemoryMetadataStore()
    assert await document(store).change(lambda content: {**content, "a": 1}) == {"a": 1}
    assert await document(store).load() == {"a": 1}


async def test_two_nodes_lose_nothing_of_each_other() -> None:
    store = InMemoryMetadataStore()
    here, there = document(store), document(store)
    await here.load()
    await there.change(lambda content: {**content, "a": 1})
    assert await here.change(lambda content: {**content, "b": 2}) == {"a": 1, "b": 2}


async def test_a_change_to_nothing_new_writes_nothing() -> None:
    store = InMemoryMetadataStore()
    assert await document(store).change(lambda _: None) == {}
    assert await store.read_versioned("counts") == (None, 0)


async def test_an_unreadable_document_is_a_storage_error() -> None:
    store = InMemoryMetadataStore()
    await store.compare_and_set("counts", b"[1]", 0)
    with pytest.raises(StorageError, match="'counts' in the metadata store cannot be read"):
        await document(store).load()
