"""Answers that may miss a change of another node wait until this node has heard of it; a node alone never waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fencepost.broker.requests.caught_up import caught_up, may_have_missed


def services(*others: object, caught: list[str] | None = None) -> Any:
    async def catch_up() -> None:
        assert caught is not None
        caught.append("caught up")

    placement = SimpleNamespace(other_nodes=lambda: list(others))
    return SimpleNamespace(topics=SimpleNamespace(placement=placement, catch_up=catch_up))


def test_a_node_alone_misses_nothing_and_does_not_even_look() -> None:
    looked_at: list[str] = []

    def look_at(name: str) -> str:
        looked_at.append(name)
        return name

    assert not may_have_missed(services())
    assert not may_have_missed(services(), map(look_at, ["orders", "payments"]))
    assert looked_at == []


def test_one_of_several_may_miss_what_it_does_not_find() -> None:
    assert may_have_missed(services("other"))
    assert may_have_missed(services("other"), ["found", None])
    assert not may_have_missed(services("other"), ["found", "found"])


async def test_the_answer_is_made_after_the_changes_are_known() -> None:
    order: list[str] = []
    context: Any = SimpleNamespace(services=services("other", caught=order))

    def answer() -> str:
        order.append("answered")
        return "reply"

    async def later() -> Any:
        return answer()

    assert await caught_up(context, answer) == "reply"
    assert await caught_up(context, later) == "reply"
    assert order == ["caught up", "answered"] * 2
