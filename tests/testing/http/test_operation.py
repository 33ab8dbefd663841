"""An operation with its parameters."""

from __future__ import annotations

from fencepost.testing.http.answers import DONE
from fencepost.testing.http.kinds import Flag, Whole
from fencepost.testing.http.operation import Operation, Parameter


def operation(method: str, path: str) -> Operation:
    return Operation("one", method, path, "", lambda *_: {}, DONE)


def test_the_parameters_of_its_path_are_found_in_it() -> None:
    assert operation("GET", "/").in_path == ()
    assert [one.name for one in operation("GET", "/brokers/{broker}/faults/{fault}").in_path] == ["broker", "fault"]


def test_arguments_are_in_the_body_of_a_post_alone() -> None:
    assert [operation(method, "/").has_body for method in ("GET", "POST", "DELETE")] == [False, True, False]


def test_a_parameter_is_required_unless_it_has_a_default() -> None:
    assert Parameter("count", Whole(0, 1), "").is_required
    assert not Parameter("count", Whole(0, 1), "", None).is_required
    assert not Parameter("fields", Flag(), "", False).is_required
