"""The points at which tests kill a broker name functions that exist."""

from __future__ import annotations

import importlib
from functools import reduce

import pytest

from tests.support import killed_at_point, process_killed_at_point
from tests.support.killed_at_point import Point

POINTS = {**killed_at_point.POINTS, **process_killed_at_point.POINTS}


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
def test_a_point_is_at_a_function(point: Point) -> None:
    owner = importlib.import_module(point.module)
    assert callable(reduce(getattr, point.name.split("."), owner))
