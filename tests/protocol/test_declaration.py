"""Declarations of messages: versions, fields and what is refused."""

from __future__ import annotations

import pytest

from fencepost.protocol.declaration import Versions, schema_of, shared_default, struct_schema_of
from fencepost.protocol.schema import field, int32, message, struct


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("2", [2], [1, 3]), ("1-3", [1, 2, 3], [0, 4]), ("4+", [4, 99], [3]), ("none", [], [0])],
)
def test_versions_are_written_as_in_kafkas_files(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


@struct
class Inner:
    """A struct."""

    number: int32 = 3


@message(key=999, versions="0-2", flexible="2+")
class OuterRequest:
    """A request."""

    name: str = "n"
    inner: Inner = Inner()
    later: int32 = field(versions="1+", default=-1)


def test_a_schema_knows_name_key_versions_and_fields() -> None:
    schema = schema_of(OuterRequest)
    assert (schema.name, schema.is_request) == ("OuterRequest", True)
    assert list(schema.versions) == [0, 1, 2]
    assert 2 in schema.flexible
    assert 1 not in schema.flexible
    assert [one.name for one in schema.fields] == ["name", "inner", "later"]
    assert [one.name for one in struct_schema_of(Inner).fields] == ["number"]


def test_a_struct_is_no_message() -> None:
    with pytest.raises(TypeError):
        schema_of(Inner)


def test_a_default_that_instances_share_cannot_be_changed() -> None:
    shared = shared_default(Inner())
    with pytest.raises(AttributeError):
        shared.number = 4
    assert OuterRequest().inner == Inner(3)
