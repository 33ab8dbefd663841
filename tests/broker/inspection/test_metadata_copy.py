"""What `fencepost log` finds and mends in the metadata that several processes share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fencepost.broker.cluster.processes.node_directories import node_directory
from fencepost.broker.inspection.metadata_copy import metadata_path, opened_copy, repair_metadata
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.shared_sqlite import SharedSqliteMetadataStore, prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME


async def test_shared_metadata_older_than_their_copy_are_found_and_mended_from_the_directory_of_a_node(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / FILE_NAME)
    await prepare_shared(path)
    shutil.copy(path, tmp_path / "earlier")
    store = SharedSqliteMetadataStore(path)
    await store.open()
    await store.create_topic(TopicMetadata("orders", b"o" * 16, 1))
    await store.close()
    shutil.copy(tmp_path / "earlier", path)
    node = node_directory(str(tmp_path), 1)
    os.mkdir(node)
    assert metadata_path(node) == metadata_path(str(tmp_path)) == path
    async with opened_copy(node) as found:
        assert "it is older than its copy" in str(found.restored)
        assert [topic.name for topic in await found.store.load_topics()] == ["orders"]
    await repair_metadata(node)
    async with opened_copy(node) as found:
        assert (found.restored, found.went_back, found.unusable) == (None, None, ())
    store = SharedSqliteMetadataStore(path)
    await store.open()
    assert [topic.name for topic in await store.load_topics()] == ["orders"]
    await store.close()
