"""What a schema is."""

from __future__ import annotations

from fencepost.schemas.schema import Kind, Schema, schema_from_json


def test_a_schema_comes_through_a_pipe_as_it_was() -> None:
    schema = Schema(Kind.PROTOBUF, 'syntax = "proto3";', (("a.proto", "x"), ("b.proto", "\u202e")))
    assert schema_from_json(schema.to_json()) == schema


def test_people_read_the_kinds_by_their_names() -> None:
    assert [one.title for one in Kind] == ["Avro", "Protobuf", "JSON Schema"]
