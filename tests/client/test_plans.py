"""The way to a coordinator, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client import plans
from fencepost.client.errors import RefusedError
from fencepost.client.plans import Address, Ask, Pause, Plan, Routes
from fencepost.client.view import CoordinatorKind
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse

HERE, THERE = Address("here", 1), Address("there", 2)


def plan(routes: Routes, key: str = "g") -> Plan:
    """Its request is "question", and its reply an error code."""
    return routes.to_coordinator(CoordinatorKind.GROUP, key, "question", lambda reply: int(reply))


def at(address: Address) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(host=address.host, port=address.port)


def result_of(steps: Plan, reply: Any) -> Any:
    with pytest.raises(StopIteration) as end:
        steps.send(reply)
    return end.value.value


def test_a_coordinator_is_looked_up_once() -> None:
    routes = Routes()
    steps = plan(routes)
    looked_up = next(steps)
    assert isinstance(looked_up, Ask)
    assert isinstance(looked_up.request, FindCoordinatorRequest)
    assert steps.send(at(HERE)) == Ask("question", HERE)
    assert result_of(steps, 0) == 0
    assert next(plan(routes)) == Ask("question", HERE)


def test_a_coordinator_that_has_moved_is_looked_up_anew() -> None:
    steps = plan(Routes())
    next(steps)
    steps.send(at(HERE))
    assert steps.send(ErrorCode.NOT_COORDINATOR) == Pause(ErrorCode.NOT_COORDINATOR, "'g'")
    assert next(steps).request.key == "g"  # type: ignore[union-attr]
    assert steps.send(at(THERE)) == Ask("question", THERE)


def test_the_same_coordinator_is_asked_again_while_an_earlier_transaction_ends() -> None:
    steps = plan(Routes())
    next(steps)
    steps.send(at(HERE))
    assert isinstance(steps.send(ErrorCode.CONCURRENT_TRANSACTIONS), Pause)
    assert next(steps) == Ask("question", HERE)


def test_a_cluster_without_a_coordinator_yet_is_asked_again() -> None:
    steps = plan(Routes())
    next(steps)
    away = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert steps.send(away) == Pause(ErrorCode.COORDINATOR_NOT_AVAILABLE, "'g'")
    assert isinstance(next(steps), Ask)


def test_a_refusal_that_does_not_pass_ends_the_plan() -> None:
    steps = plan(Routes())
    next(steps)
    with pytest.raises(RefusedError, match="GROUP_AUTHORIZATION_FAILED"):
        steps.send(FindCoordinatorResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    steps = plan(Routes())
    next(steps)
    steps.send(at(HERE))
    assert result_of(steps, ErrorCode.INVALID_GROUP_ID) == ErrorCode.INVALID_GROUP_ID


def test_what_was_at_a_lost_broker_is_looked_up_anew() -> None:
    routes = Routes()
    for key, address in (("g", HERE), ("h", THERE)):
        steps = plan(routes, key)
        next(steps)
        steps.send(at(address))
    routes.forget(HERE)
    assert isinstance(next(plan(routes, "g")), Ask)
    assert next(plan(routes, "h")) == Ask("question", THERE)
    assert next(plan(routes, "g")) != Ask("question", HERE)


def test_coordinators_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_ROUTES", 2)
    routes = Routes()
    for key in "abcde":
        steps = plan(routes, key)
        next(steps)
        steps.send(at(HERE))
    assert len(routes._coordinators) <= 2


def test_what_did_not_pass_in_time_says_whose_error_it_was() -> None:
    error = Pause(ErrorCode.NOT_COORDINATOR, "'g'").too_long(2.5)
    assert str(error) == "the broker refused: NOT_COORDINATOR ('g', for 2.5 s)"
