"""Listeners: addresses and protocols that can be, and those that are refused."""

from __future__ import annotations

import pytest

from fencepost.broker.config import ConfigurationError, load_settings


def problems_of(**sources: object) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(**sources)  # type: ignore[arg-type]
    return caught.value.problems


@pytest.mark.parametrize(
    ("assignments", "part"),
    [
        (["inter.broker.listener.name=INSIDE"], "there is no listener INSIDE; listeners has PLAINTEXT"),
        (["security.inter.broker.protocol=SASL_SSL"], "there is no listener SASL_SSL"),
        (
            ["security.inter.broker.protocol=PLAINTEXT", "inter.broker.listener.name=PLAINTEXT"],
            "remove it, or security.inter.broker.protocol",
        ),
    ],
)
def test_an_impossible_listener_for_other_nodes_is_refused(assignments: list[str], part: str) -> None:
    (problem,) = problems_of(assignments=assignments)
    assert part in problem
    assert problem.startswith("--set: ")


@pytest.mark.parametrize(
    ("assignment", "part"),
    [
        ("listeners=localhost:9092", "expected NAME://host:port"),
        ("listeners=INSIDE://localhost:9092", "add INSIDE:PLAINTEXT to listener.security.protocol.map"),
        ("listeners=PLAINTEXT://:1,PLAINTEXT://:2", "used more than once"),
        ("listeners=PLAINTEXT://host:70000", "the port must be 0 to 65535"),
        ("listeners=PLAINTEXT://::1:9092", "must stand in brackets"),
        ("listeners=", "at least one listener"),
        ("advertised.listeners=OUTSIDE://host:1", "there is no listener OUTSIDE"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "clients cannot connect"),
    ],
)
def test_impossible_listeners_are_refused(assignment: str, part: str) -> None:
    (problem,) = problems_of(assignments=[assignment])
    assert part in problem
    assert problem.startswith("--set: ")
