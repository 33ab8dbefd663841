"""The metadata store in memory: nodes that share it."""

from __future__ import annotations

from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore

ORDERS = TopicMetadata("orders", bytes([1]) * 16, 2)


async def test_nodes_hear_of_documents_that_others_write_and_not_of_their_own() -> None:
    here = InMemoryMetadataStore("c")
    there = here.for_another_node()
    heard: list[str] = []
    here.on_documents_changed.append(lambda: heard.append("here"))
    there.on_documents_changed.append(lambda: heard.append("there"))
    assert await here.compare_and_set("acls", b"1", 0)
    assert heard == ["there"]
    assert await there.read_versioned("acls") == (b"1", 1)


async def test_all_nodes_hear_of_topics() -> None:
    here = InMemoryMetadataStore("c")
    there = here.for_another_node()
    heard: list[str] = []
    here.on_topics_changed.append(lambda: heard.append("here"))
    there.on_topics_changed.append(lambda: heard.append("there"))
    assert await there.create_topic(ORDERS)
    assert heard == ["here", "there"]
    assert await here.load_topics() == [ORDERS]


async def test_a_store_that_is_opened_again_has_kept_everything() -> None:
    store = InMemoryMetadataStore()
    await store.create_topic(ORDERS)
    cluster_id = await store.cluster_id()
    await store.close()
    await store.open()
    assert (await store.load_topics(), await store.cluster_id()) == ([ORDERS], cluster_id)
