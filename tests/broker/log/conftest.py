"""Record batches and disks for the tests of the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.local_disk import LocalDisk


@pytest.fixture
def disk() -> Iterator[LocalDisk]:
    local_disk = LocalDisk()
    yield local_disk
    local_disk.close()


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path)
