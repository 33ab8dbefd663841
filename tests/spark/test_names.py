"""Names of a sink: which are valid, and which transactional ids belong to it."""

from __future__ import annotations

import re

import pytest

from fencepost.spark.names import draw_nonce, driver_id, require_sink_name, task_id, task_ids_pattern


def test_an_attempt_of_a_task_belongs_to_its_sink() -> None:
    assert task_id("orders", "3f9a1c02", 4, 17) == "orders-3f9a1c02-4-17"
    assert re.fullmatch(task_ids_pattern("orders"), task_id("orders", draw_nonce(), 4, 17))


def test_ids_of_another_sink_do_not_whatever_its_name() -> None:
    pattern = re.compile(task_ids_pattern("orders"))
    for other in ("orders-eu", "orders-12345678", "orders-12345678-1", "order", "xorders"):
        assert not pattern.fullmatch(task_id(other, "12345678", 0, 0))
    assert not pattern.fullmatch(driver_id("orders"))


def test_a_dot_in_a_name_is_a_dot() -> None:
    assert not re.fullmatch(task_ids_pattern("a.b"), task_id("axb", "12345678", 0, 0))


def test_each_nonce_differs() -> None:
    assert len({draw_nonce() for _ in range(100)}) == 100


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", "a" * 201])
def test_a_name_that_cannot_be_in_a_topic_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the sink's name"):
        require_sink_name(name)
