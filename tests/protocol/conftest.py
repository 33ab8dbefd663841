"""Tests marked `long` run when asked for (`-m long`): the properties of their short versions, with more examples."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "long" in str(config.getoption("markexpr")):
        return
    kept = [item for item in items if item.get_closest_marker("long") is None]
    dropped = [item for item in items if item.get_closest_marker("long") is not None]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
