"""Which faults a soak begins, and when it has had enough of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from fencepost.soak.nemesis import Nemesis


def nemesis() -> Nemesis:
    broker: Any = SimpleNamespace(process_count=1, raise_if_ended=lambda: None)
    crew: Any = SimpleNamespace(posts={}, plan=SimpleNamespace(all_partitions=list))
    return Nemesis(broker, crew, random.Random(1), interval_s=1e-9, say=lambda _: None)


def test_each_fault_that_was_added_has_its_turn_before_all_others() -> None:
    made = nemesis()
    begun: list[str] = []

    def fault(name: str) -> Any:
        def run() -> Iterator[float]:
            begun.append(name)
            made.note(name, name)
            yield 0.0

        return run

    made.add({fault(name): 1 for name in ("a", "b", "c")}, {("a",): 1, ("b", "c"): 2})
    assert not made.has_done_enough
    while len(begun) < 3:
        made.act(may_begin=True)
    assert sorted(begun) == ["a", "b", "c"]
    assert made.has_done_enough


def test_a_fault_that_could_not_take_place_has_another_turn() -> None:
    made = nemesis()
    tries: list[int] = []

    def blocked() -> Iterator[float]:
        tries.append(1)
        if len(tries) == 3:
            made.note("blocked", "now")
        yield from ()

    made.add({blocked: 0}, {("blocked",): 1})
    while not made.has_done_enough:
        made.act(may_begin=True)
    assert len(tries) == 3
