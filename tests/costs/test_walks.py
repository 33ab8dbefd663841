"""A request's way through the rooms and files of the broker stays short, and its reply waits for one sync at most.

The limits may only fall: they are the walks of Python 3.11. Later versions run some comprehensions without a call.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from fencepost.protocol.record_batch import Record, build_batch
from tests.costs import walks
from tests.costs.walks import Walk, walking


class Limits(NamedTuple):
    """The most that a walk may have. barriers: the exact number of syncs, or flushes of a cluster, before the reply."""

    rooms: int
    files: int
    calls: int
    returns: int
    barriers: int


# fmt: off
LIMITS = {
    ("one broker", "Produce"):            Limits(8,  29, 98,  78,  1),
    ("one broker", "Fetch"):              Limits(7,  19, 40,  28,  0),
    ("one broker", "EndTxn to Complete"): Limits(10, 39, 289, 252, 1),
    ("one broker", "JoinGroup"):          Limits(7,  23, 80,  72,  0),
    ("cluster",    "Produce"):            Limits(9,  32, 125, 95,  1),
    ("cluster",    "Fetch"):              Limits(7,  20, 41,  29,  0),
    ("cluster",    "EndTxn to Complete"): Limits(11, 45, 363, 314, 1),
    ("cluster",    "JoinGroup"):          Limits(7,  24, 81,  73,  0),
}
# fmt: on
"""JoinGroup keeps a new generation in memory until its assignment is written. The steps of a Produce are a room."""


def counts_of(walk: Walk) -> Limits:
    return Limits(len(walk.rooms), len(walk.files), walk.calls_count, walk.returns_count, walk.barriers_count)


def beyond(found: Limits, limits: Limits) -> list[str]:
    """What is above its limit; of the barriers, what is not at it."""
    return [
        f"{found[place]} {name}, the limit is {limits[place]}"
        for place, name in enumerate(Limits._fields)
        if found[place] > limits[place] or (name == "barriers" and found[place] != limits[place])
    ]


@pytest.mark.parametrize(("broker", "name"), LIMITS)
def test_a_request_enters_few_files_and_waits_for_one_sync(
    broker: str, name: str, tmp_path: Path, reported_at_the_end: list[str]
) -> None:
    walk, limits = walks.measure(name, str(tmp_path), broker), LIMITS[broker, name]
    found = counts_of(walk)
    assert not beyond(found, limits), str(walk)
    if sys.version_info < (3, 12) and found != limits:
        reported_at_the_end.append(f"{broker}, {name} has a shorter walk: write {found} in tests/costs/test_walks.py.")


def test_a_walk_counts_calls_and_each_return_to_a_file() -> None:
    walk = Walk()
    with walking(walk):
        build_batch([Record(0, 0, None, b"value")])
    assert walk.rooms == {"protocol"}
    assert len(walk.files) > 1
    assert walk.calls_count > walk.returns_count > 0


def test_one_file_more_is_noticed_and_one_sync_less() -> None:
    limits = Limits(7, 29, 103, 84, 1)
    assert not beyond(Limits(6, 28, 102, 83, 1), limits)
    assert beyond(Limits(7, 30, 103, 85, 0), limits) == [
        "30 files, the limit is 29",
        "85 returns, the limit is 84",
        "0 barriers, the limit is 1",
    ]
