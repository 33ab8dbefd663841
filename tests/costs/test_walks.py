"""A request's way through the rooms of the broker stays short, and its reply waits for one sync at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.costs import walks

MAXIMUM_ROOMS = {"Produce": 7, "Fetch": 7, "EndTxn to Complete": 10, "JoinGroup": 7}
BARRIERS = {"Produce": 1, "Fetch": 0, "EndTxn to Complete": 1, "JoinGroup": 0}
"""JoinGroup keeps a new generation in memory until its assignment is written."""


@pytest.mark.parametrize("name", walks.WALKS)
def test_a_request_enters_few_rooms_and_waits_for_one_sync(name: str, tmp_path: Path) -> None:
    walk = walks.measure(name, str(tmp_path))
    assert len(walk.rooms) <= MAXIMUM_ROOMS[name], walk
    assert walk.barriers_count == BARRIERS[name], walk
