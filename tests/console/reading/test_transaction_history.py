"""The life of a transactional id is read from the partition that its coordinator writes."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.console.reading import transaction_history
from fencepost.console.reading.records import Range
from fencepost.console.reading.topics import PartitionState
from fencepost.console.reading.transaction_history import LifeLine, read_history
from fencepost.console.record_marks import read_batches
from fencepost.protocol.record_batch import build_batch
from tests.diagnosis.test_transaction_history import EMPTY, ONGOING, record


class OneTopic:
    """A cluster whose `__transaction_state` has some partitions, or that shows none to this user."""

    def __init__(self, partitions: int) -> None:
        self.topics = {"__transaction_state": self} if partitions else {}
        self.partitions = range(partitions)

    async def view(self, _: list[str]) -> OneTopic:
        return self


async def life(monkeypatch: pytest.MonkeyPatch, *, partitions: int = 3, error: str | None = None) -> LifeLine:
    content = build_batch([record(0, EMPTY), record(1, EMPTY, "another"), record(2, ONGOING, orders=[0])])

    async def partition(_: Any, topic: str, index: int) -> PartitionState:
        return PartitionState(topic, index, 1, 0, 0, 3, 3, error=error)

    async def whole(*_: Any, **__: Any) -> Range:
        return Range(read_batches(content), 3, is_whole=True)

    monkeypatch.setattr(transaction_history, "read_partition", partition)
    monkeypatch.setattr(transaction_history, "read_range", whole)
    cluster: Any = OneTopic(partitions)
    return await read_history(cluster, "till")


async def test_the_records_of_the_id_are_shown_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await life(monkeypatch)
    assert [(one.offset, one.state) for one in found.moments] == [(0, "Empty"), (2, "Ongoing")]
    assert found.missing == ""


async def test_why_there_is_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Your user may not read __transaction_state" in (await life(monkeypatch, partitions=0)).missing
    offline = await life(monkeypatch, partitions=1, error="KAFKA_STORAGE_ERROR")
    assert offline.missing == "__transaction_state-0 does not answer: KAFKA_STORAGE_ERROR."
