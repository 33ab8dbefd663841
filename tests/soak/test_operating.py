"""An operator's commands during a soak."""

from __future__ import annotations

import random
import sys
from collections.abc import Generator

import pytest

from fencepost.soak import operating
from fencepost.soak.operating import Operator, finished
from fencepost.soak.plan import Partition


class ThreeNodes:
    bootstrap_servers = "localhost:1"
    node_ids = range(1, 4)


def succeeds(running: Generator[float, None, bool]) -> bool:
    while True:
        try:
            next(running)
        except StopIteration as ended:
            return bool(ended.value)


def test_a_command_succeeds_by_its_exit_code() -> None:
    assert succeeds(finished([sys.executable, "-S", "-c", ""]))
    assert not succeeds(finished([sys.executable, "-S", "-c", "raise SystemExit(3)"]))


def test_a_move_is_counted_with_its_partition_and_target(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[str, str]] = []
    operator = Operator(
        ThreeNodes(),
        random.Random(1),
        partitions=[Partition("orders", 4)],
        note=lambda *note: noted.append(note),
        findings=[],
    )
    monkeypatch.setattr(operating, "COMMAND", (sys.executable, "-S", "-c", ""))
    assert set(operator.move()) <= {operating.LOOK_S}
    ((fault, text),) = noted
    assert fault == "moves"
    assert text.startswith("orders-4: move to ")
