"""Disks and log directories that tests of the log share with those of what is built on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencepost.broker.storage.local_disk import LocalDisk
from tests.support.log_world import LogWorld


@pytest.fixture
def disk() -> Iterator[LocalDisk]:
    local_disk = LocalDisk()
    yield local_disk
    local_disk.close()


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[LogWorld]:
    log_world = LogWorld(str(tmp_path / "logs"))
    await log_world.start()
    yield log_world
    await log_world.stop()
    log_world.disk.close()
