"""Nodes that look for their leases often."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.cluster.leases import lease_placement
from fencepost.broker.cluster.processes import process_member
from fencepost.broker.metadata.shared_sqlite import prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME
from tests.broker.cluster.processes.members import Members


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_member, "INTERVAL_S", 0.01)
    monkeypatch.setattr(process_member, "GRACE_S", 0.0)
    monkeypatch.setattr(lease_placement, "SETTLING_S", 0.0)


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[Members]:
    await prepare_shared(str(tmp_path / FILE_NAME))
    members = Members(tmp_path)
    yield members
    for node_id in list(members.nodes):
        await members.stop(node_id)
