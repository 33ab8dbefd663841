"""The table of operations."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from fencepost import Broker
from fencepost.testing.faults import Timed, Which
from fencepost.testing.http.operation import Operation
from fencepost.testing.http.operations import OPERATIONS
from fencepost.testing.process import ProcessBroker

OF_THE_PROGRAM = {"program", "create_broker", "brokers", "broker", "close_broker", "faults", "fault"}
OF_A_FAULT = {"wait_until_fired", "release", "remove"}
OF_HTTP = {"encoding", "skip", "limit", "fields"}
"""Parameters of answers, which no method has."""
METHODS = [one for one in OPERATIONS if one.name not in OF_THE_PROGRAM | OF_A_FAULT]


def test_names_and_addresses_are_unique() -> None:
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)
    shapes = [shape for one in OPERATIONS for shape in one.result.shapes()]
    assert all(first == second for first in shapes for second in shapes if first.name == second.name)


@pytest.mark.parametrize("operation", METHODS, ids=lambda operation: operation.name)
def test_an_operation_has_the_name_the_arguments_and_the_defaults_of_a_method(operation: Operation) -> None:
    method = getattr(Broker, operation.name, None) or getattr(ProcessBroker, operation.name)
    known: dict[str, Any] = dict(inspect.signature(method).parameters)
    if "which" in known:
        known |= dict.fromkeys((Which if operation.name == "crash_after" else Timed).__annotations__)
    given = {one.name: one for one in operation.parameters if one.name not in OF_HTTP}
    assert given.keys() == known.keys() - {"self", "which"}
    for name, parameter in given.items():
        described = known[name]
        if described is not None and described.kind is not inspect.Parameter.VAR_POSITIONAL:
            default = described.default
            assert parameter.is_required == (default is inspect.Parameter.empty), name
            assert parameter.is_required or parameter.default == default, name


def test_every_public_method_has_an_operation_or_a_reason() -> None:
    without = {
        "check_faults": "close_broker reports them",
        "close": "close_broker",
        "close_helpers": "of the plugin",
        "data_to_keep": "close_broker keeps them",
        "kill": "crash",
        "run_command": "of the plugin",
        "silence": "of the plugin",
        "start": "create_broker",
        "wait_for_exit": "broker shows is_running",
        "wait_until": "of the plugin",
    }
    methods = {
        name
        for kind in (Broker, ProcessBroker)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == {one.name for one in METHODS} | without.keys()


def test_nouns_are_read_and_verbs_are_done() -> None:
    assert all(one.has_body == (one.method == "POST") for one in OPERATIONS)
    assert {one.status for one in OPERATIONS if one.method != "POST"} == {200}
