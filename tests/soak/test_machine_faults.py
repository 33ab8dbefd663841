"""Faults of the stores of a cluster of machines: promotions, and that a store has one fault at a time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.soak.machine_faults import MachineFaults


class Pair:
    """Notes what is done to it."""

    def __init__(self) -> None:
        self.primary, self.standby = "first", "second"
        self.done: list[str] = []

    def kill(self) -> None:
        self.done.append(f"kill {self.primary}")

    def freeze_primary(self) -> None:
        self.done.append(f"freeze {self.primary}")

    def thaw(self) -> None:
        self.done.append("thaw")

    def promote(self, *, is_old_lost: bool) -> Iterator[float]:
        assert not is_old_lost
        yield 0.1
        self.primary, self.standby = self.standby, self.primary
        self.done.append(f"promote {self.primary}")

    def make_standby(self) -> Iterator[float]:
        yield 0.1
        self.done.append(f"follow with {self.standby}")


class Machines:
    def __init__(self) -> None:
        self.databases = Pair()
        self.objects = "objects"
        self.node_ids = range(1, 4)
        self.outages: set[str] = set()

    def outage_begins(self, store: str) -> None:
        self.outages.add(store)

    def outage_ends(self, store: str) -> None:
        self.outages.remove(store)

    freeze, thaw = outage_begins, outage_ends


def faults(machines: Machines) -> tuple[MachineFaults, Counter[str]]:
    counts: Counter[str] = Counter()

    def note(fault: str, _text: str) -> None:
        counts[fault] += 1

    made: Any = machines
    return MachineFaults(made, random.Random(1), partitions=[], longest_outage_s=1.0, note=note, findings=[]), counts


@pytest.mark.parametrize(
    ("fault", "befallen"),
    [
        ("promote_after_death", ["kill first"]),
        ("promote_while_frozen", ["freeze first"]),
        ("promote_beside_primary", []),
    ],
)
def test_a_standby_is_promoted_and_the_old_primary_follows_it_later(fault: str, befallen: list[str]) -> None:
    machines = Machines()
    made, counts = faults(machines)
    assert list(getattr(made, fault)())
    assert machines.databases.done == [*befallen, "promote second", "thaw", "follow with first"]
    assert machines.outages == set()
    assert counts.total() == 1


def test_postgresql_and_its_standby_have_one_fault_at_a_time() -> None:
    machines = Machines()
    made, counts = faults(machines)
    promotion = made.promote_beside_primary()
    next(promotion)
    for fault in (made.promote_after_death, made.freeze_database, made.freeze_standby, made.cut_connections):
        assert list(fault()) == []
    assert list(made.freeze_objects())
    assert list(promotion)
    assert list(made.freeze_standby())
    assert counts == {"database_twins": 1, "objects_freezes": 1, "standby_freezes": 1}
