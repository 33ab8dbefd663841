"""Memory for a benchmark: filled before it but for a little, nothing when little is free; touched before each turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from rich.console import Console

from scripts.benchmarks import memory
from scripts.benchmarks.fencepost import FencepostSubject
from scripts.benchmarks.figures import Figure, Round, Sample
from scripts.benchmarks.memory import LEFT_FREE_BYTES, FilledMemory
from scripts.benchmarks.runner import Runner


def test_memory_is_filled_until_little_is_free_and_given_back_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "WORTH_IT_BYTES", 1_000_000)
    free_bytes = LEFT_FREE_BYTES + 8_000_000
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(free=free_bytes))
    with FilledMemory(tmp_path) as filled:
        assert filled.fill() == 8_000_000
        (file,) = tmp_path.iterdir()
        assert file.stat().st_size == 8_000_000
        free_bytes = LEFT_FREE_BYTES + 2_000_000
        assert filled.fill() == 2_000_000
        assert file.stat().st_size == 10_000_000
        free_bytes = LEFT_FREE_BYTES + 999_999
        assert filled.fill() == 0
    assert list(tmp_path.iterdir()) == []


def test_nearly_all_free_memory_is_touched_and_released_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "UNTOUCHED_BYTES", 1_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(free=65_000_000))
    with FilledMemory(tmp_path) as filled:
        mapped_bytes = psutil.Process().memory_info().vms
        assert filled.touch_free() == 64_000_000
        assert psutil.Process().memory_info().vms - mapped_bytes < 32_000_000
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(free=999_999))
        assert filled.touch_free() == 0


def test_each_turn_of_each_round_begins_with_memory_touched(tmp_path: Path) -> None:
    turns: list[str] = []

    def measure(round_: Round) -> Iterator[Sample]:
        turns.append(f"measured {round_.number}")
        yield Sample("nothing", 1.0, "MB/s")

    figure = Figure(name="none", about="", measure=measure, sizes={}, small_sizes={}, subjects=("fencepost",))
    with Runner(
        [FencepostSubject()], rounds_count=2, is_small=True, cache=tmp_path, progress=Console(quiet=True)
    ) as runner:
        runner.before_turn = lambda: turns.append("touched")
        runner.run(figure)
    assert turns == ["touched", "measured 1", "touched", "measured 2"]
