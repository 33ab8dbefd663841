"""Documents in the metadata store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.hosting import features, scram_credentials
from fencepost.broker.metadata.document import VersionedDocument, read_settings_by_name
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.network import sasl_listener
from fencepost.broker.quotas import client_quotas
from fencepost.broker.security import acl_store
from fencepost.broker.storage.disk import StorageError
from tests.support.odd_json import odd_json, odd_part


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


ODD_DOCUMENTS: tuple[tuple[Callable[[Any], Any], Any], ...] = (
    (read_settings_by_name, {"1": {"a": "b"}}),
    (features._read, {"epoch": 3, "levels": {"metadata.version": 25}}),
    (scram_credentials._read, {"u": {"SCRAM_SHA_256": {"iterations": 4096, "salt": "", "stored_key": ""}}}),
    (client_quotas._read, [{"entity": {"user": None}, "quotas": {"producer_byte_rate": 1.5}}]),
    (acl_store._read, [["TOPIC", "LITERAL", "t", "User:u", "*", "READ", "ALLOW"]]),
    (sasl_listener._read_secret, "00ff"),
)


@pytest.mark.parametrize(("read", "usual"), ODD_DOCUMENTS, ids=lambda value: getattr(value, "__module__", ""))
@given(data=st.data())
async def test_a_document_of_any_json_is_read_or_a_storage_error(
    read: Callable[[Any], Any], usual: Any, data: st.DataObject
) -> None:
    text = data.draw(odd_json() | odd_part(usual))
    store = InMemoryMetadataStore()
    assert await store.compare_and_set("odd", text, 0)
    read_document: VersionedDocument[Any] = VersionedDocument(store, "odd", read=read, write=lambda content: content)
    with suppress(StorageError):
        await read_document.load()
