"""The list of a node's parts: they close in the opposite order of their start, also if the start fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.group.service import GroupService
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.metadata.sqlite import SqliteMetadataStore
from fencepost.broker.network.network_memory import NetworkMemory
from fencepost.broker.network.server import Server, SocketListener, StartError
from fencepost.broker.node import Node
from fencepost.broker.node import node as parts_of_a_node
from fencepost.broker.quotas.connections import ConnectionQuotas
from fencepost.broker.share.lazy_service import LazyShareService
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.broker.transaction.service import TransactionService
from tests.broker.test_node import settings_for

SERVING = (Server, "stop"), (ConnectionQuotas, "close"), (NetworkMemory, "close")
STARTED = (
    (LazyShareService, "close"),
    (GroupService, "close"),
    (TransactionService, "close"),
    (Topics, "close"),
    (LogDirectory, "close"),
    (SqliteMetadataStore, "close"),
    (SocketListener, "close"),
    (LocalDisk, "close"),
)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[type, str]]:
    """The parts that were closed so far, each once, in order."""
    found: list[tuple[type, str]] = []

    def noted(part: tuple[type, str], original: Callable[..., Any]) -> Callable[..., Any]:
        def close(self: object, *arguments: Any, **named: Any) -> Any:
            if part not in found:
                found.append(part)
            return original(self, *arguments, **named)

        return close

    for kind, name in (*SERVING, *STARTED):
        monkeypatch.setattr(kind, name, noted((kind, name), getattr(kind, name)))
    return found


async def test_parts_close_in_the_opposite_order_of_their_start(tmp_path: Path, closed: list[tuple[type, str]]) -> None:
    node = Node(settings_for(tmp_path))
    await node.start()
    assert not closed

    await node.stop()

    # A server closes its socket as it stops: no connection is accepted while the others end.
    assert closed == [*SERVING[:1], STARTED[-2], *SERVING[1:], *STARTED[:-2], STARTED[-1]]


async def test_a_part_that_cannot_start_closes_those_before_it(
    tmp_path: Path, closed: list[tuple[type, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def judge_rights(*_: object) -> None:
        raise StartError("planted")

    monkeypatch.setattr(parts_of_a_node, "judge_rights", judge_rights)
    with pytest.raises(StartError, match="planted"):
        await Node(settings_for(tmp_path)).start()
    assert closed == [*STARTED]
