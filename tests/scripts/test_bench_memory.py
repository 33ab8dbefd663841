"""Filling memory before a benchmark: as much as is free, less what is left, and nothing when little is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil  # type: ignore[import-untyped]
import pytest

from scripts.benchmarks import memory
from scripts.benchmarks.memory import LEFT_FREE_BYTES, FilledMemory


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
