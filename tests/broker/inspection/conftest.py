"""A data directory on the real disk, with the metadata that a start needs, for the tests of `fencepost log`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import MappingProxyType

import pytest

from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from tests.support.log_world import ORDERS, TOPIC_ID, LogWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[LogWorld]:
    """A log directory that is started, with a topic `orders` of one partition in its metadata."""
    log_world = LogWorld(str(tmp_path / "data"))
    log_world.disk.make_directory(log_world.path)
    store = SqliteMetadataStore(f"{log_world.path}/{FILE_NAME}")
    await store.open()
    await store.create_topic(TopicMetadata(ORDERS.topic, TOPIC_ID, 1, MappingProxyType({})))
    await store.close()
    await log_world.start()
    yield log_world
    log_world.disk.close()
