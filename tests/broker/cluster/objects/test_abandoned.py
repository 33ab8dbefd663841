"""Names that no row will have: kept in order, within bounds, until they are garbage."""

from __future__ import annotations

from fencepost.broker.cluster.objects import abandoned
from fencepost.broker.cluster.objects.abandoned import AbandonedObjects


def test_names_are_kept_in_order_until_they_are_forgotten() -> None:
    names = AbandonedObjects()
    names.add(["a", "b"])
    names.add(iter(["c"]))
    assert names.first(2) == ["a", "b"]
    assert names.first(2) == ["a", "b"], "it may have to be repeated"
    names.add(["d"])
    names.forget(["a", "b"])
    assert names.first(10) == ["c", "d"]
    names.forget(["c", "d", "unknown"])
    assert names.first(10) == []


def test_names_beyond_the_bound_are_left_to_the_listing_the_oldest_first() -> None:
    names = AbandonedObjects()
    names.add(str(number) for number in range(abandoned.MOST_NAMES + 2))
    assert names.first(1) == ["2"]
    names.forget(["2"])
    names.add(["x", "y"])
    assert names.first(1) == ["4"]
