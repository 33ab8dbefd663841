"""A batch of many tasks is completed as one of a few."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.spark.committing import end_all
from fencepost.spark.names import task_id, task_ids_pattern
from fencepost.two_phase import Coordinator
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
