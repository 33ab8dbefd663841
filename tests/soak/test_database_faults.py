"""Faults of the database of a soak's services: which there are, and which of them exclude each other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.soak.cutting_proxy import Place
from fencepost.soak.database_faults import DatabaseFaults


class Proxy:
    def __init__(self) -> None:
        self.cuts_count = 0
        self.armed: list[Place] = []

    def cut_next(self, place: Place) -> None:
        self.armed.append(place)


class Database:
    """Notes what is done to it."""

    def __init__(self, *, has_pooler: bool = True, can_be_full: bool = True) -> None:
        self.has_pooler = has_pooler
        self.can_be_full = can_be_full
        self.is_held = False
        self.standby: object | None = object()
        self.proxy = Proxy()
        self.done: list[str] = []

    def kill(self) -> None:
        self.done.append("kill")

    def start_again(self) -> Iterator[float]:
        yield 0.1
        self.done.append("start")

    def promote(self) -> Iterator[float]:
        yield 0.1
        self.done.append("promote")

    def make_standby(self) -> Iterator[float]:
        yield 0.1
        self.done.append("standby")


def faults(database: Database) -> tuple[DatabaseFaults, Counter[str]]:
    counts: Counter[str] = Counter()

    def note(fault: str, _text: str) -> None:
        counts[fault] += 1

    made: Any = database
    return DatabaseFaults(made, random.Random(1), growing=lambda: "base/1", locks="SELECT 1", note=note), counts


def test_the_servers_have_one_fault_at_a_time() -> None:
    database = Database()
    made, counts = faults(database)
    killing = made.kill()
    next(killing)
    assert list(made.promote()) == []
    assert list(killing) != []
    assert (database.done, dict(counts)) == (["kill", "start"], {"postgres_kills": 1})
    assert list(made.promote()) != []
    assert database.done[2:] == ["promote", "standby"]


def test_what_has_no_standby_is_not_promoted() -> None:
    database = Database()
    database.standby = None
    made, counts = faults(database)
    assert list(made.promote()) == []
    assert not counts
    assert not database.is_held


@pytest.mark.parametrize("place", Place)
def test_each_connection_that_was_cut_counts_once(place: Place) -> None:
    database = Database()
    made, counts = faults(database)
    cutting = made._cut(place)
    next(cutting)
    assert not counts
    assert set(database.proxy.armed) == {place}
    database.proxy.cuts_count = 10  # others were cut meanwhile, too
    assert list(cutting) == []
    assert counts == {f"commit_cuts_{place.value}": len(database.proxy.armed)}


def test_what_is_not_installed_has_no_faults() -> None:
    whole, _ = faults(Database())
    bare, _ = faults(Database(has_pooler=False, can_be_full=False))
    missing = {fault.__name__ for fault in whole.all()} - {fault.__name__ for fault in bare.all()}
    assert missing == {"kill_pooler", "fill_disk_of_table", "fill_disk_of_wal"}
