"""A batch of many tasks is completed as one of a few."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fencepost.soak.free_port import free_port
from fencepost.spark import committing
from fencepost.spark.committing import abort_all, end_all
from fencepost.spark.names import task_id, task_ids_pattern
from fencepost.two_phase import Coordinator, Token
from tests.support.open_transactions import open_transactions

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("count", [1, 2, 100, 1000])
def test_a_batch_of_as_many_tasks_is_completed(fencepost: Any, count: int) -> None:
    names = [task_id("many", "3f9a1c02", index, index) for index in range(count)]
    tokens = open_transactions(fencepost.host, fencepost.port, fencepost.topic("of-many"), names)
    with Coordinator(fencepost.bootstrap_servers) as coordinator:
        listed = coordinator.in_doubt(task_ids_pattern("many"), including=names)
        assert {open_.token for open_ in listed} == set(tokens)
        assert end_all(coordinator, tokens, commit=True, timeout_s=300) == []
        assert coordinator.in_doubt(task_ids_pattern("many")) == []


def test_the_transactions_of_as_many_tasks_are_aborted(fencepost: Any) -> None:
    names = [task_id("many-aborted", "3f9a1c02", index, index) for index in range(1000)]
    tokens = open_transactions(fencepost.host, fencepost.port, fencepost.topic("of-many-aborted"), names)
    with Coordinator(fencepost.bootstrap_servers) as coordinator:
        abort_all(coordinator, tokens)
        abort_all(coordinator, tokens)  # which may be repeated
        assert coordinator.in_doubt(task_ids_pattern("many-aborted")) == []


def test_aborts_end_where_no_broker_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them have one time limit, however many they are."""
    monkeypatch.setattr(committing, "ABORT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(committing, "EACH_S", 0.001)
    tokens = [Token(index, 0, task_id("many", "3f9a1c02", index, index)) for index in range(1000)]
    began_s = time.monotonic()
    with Coordinator(f"127.0.0.1:{free_port()}") as coordinator:
        abort_all(coordinator, tokens)
    assert time.monotonic() - began_s < 20
    assert "1000 of 1000 transactions were not aborted, which a later session does" in capsys.readouterr().err
