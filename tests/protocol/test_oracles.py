"""Our bytes are those of two other implementations, kafka-python and kio, for any values, at every version.

Both decode what we wrote; what they write again is the same bytes, and we read it as the same object.
"""

from __future__ import annotations

import importlib
import io
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from fencepost.protocol.declaration import SCHEMA_ATTRIBUTE, struct_schema_of
from fencepost.protocol.schema import ZERO_UUID, decode, encode
from tests.protocol.kafka_python import knows, message_class
from tests.protocol.message_strategies import (
    LONG,
    SHORT,
    Case,
    for_every_layout_of_others,
    for_every_version_of_others,
    is_own,
    messages,
    snake_case,
)
from tests.protocol.newer_messages import NAMES_OF_OTHERS


def written_again_by_kafka_python(case: Case, encoded: bytes, message: Any) -> bytes:
    theirs = message_class(case.schema.name).decode(encoded, version=case.version)
    assert_same_values(message, theirs, case.version)
    theirs._header = None
    return bytes(theirs.encode(version=case.version))


def assert_same_values(ours: Any, theirs: Any, version: int) -> None:
    for field in struct_schema_of(type(ours)).fields:
        if is_own(field) or version not in field.versions or field.name.endswith("authorized_operations"):
            continue  # kafka-python has those bits under another name, as a set
        their_name = NAMES_OF_OTHERS.get((type(ours).__name__, field.name), field.name)
        assert_same_value(getattr(ours, field.name), getattr(theirs, their_name), version)


def assert_same_value(ours: Any, theirs: Any, version: int) -> None:
    if theirs is None and ours is not None:  # kafka-python's notion of a zero id, and of a struct of defaults
        assert ours == (struct_schema_of(type(ours)).python_class() if is_struct(ours) else ZERO_UUID)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for our_element, their_element in zip(ours, theirs, strict=True):
            assert_same_value(our_element, their_element, version)
    elif isinstance(theirs, UUID):
        assert ours == theirs.bytes
    elif is_struct(ours):
        assert_same_values(ours, theirs, version)
    else:
        assert ours == theirs


def is_struct(value: Any) -> bool:
    return hasattr(type(value), SCHEMA_ATTRIBUTE)


def written_again_by_kio(case: Case, encoded: bytes) -> bytes:
    module = importlib.import_module(f"kio.schema.{snake_case(case.api_name)}.v{case.version}.{case.kind}")
    entity = getattr(module, case.schema.name)
    theirs, size = entity_reader(entity)(encoded, 0)
    assert size == len(encoded)
    out = io.BytesIO()
    entity_writer(entity)(out, theirs)
    return out.getvalue()


def check(case: Case, data: st.DataObject) -> None:
    message = data.draw(messages(case))
    encoded = bytes(encode(message, case.version))
    assert written_again_by_kio(case, encoded) == encoded
    if case.schema.name == "ApiVersionsResponse":
        message.error_code = 0  # kafka-python reads a refusal as version 0, whatever it asked for
        encoded = bytes(encode(message, case.version))
    if knows(case.schema.name):
        assert written_again_by_kafka_python(case, encoded, message) == encoded
    assert decode(case.message_type, encoded, case.version) == message


@for_every_layout_of_others
@given(data=st.data())
@SHORT
def test_any_message_is_the_same_bytes_elsewhere(case: Case, data: st.DataObject) -> None:
    check(case, data)


@pytest.mark.long
@for_every_version_of_others
@given(data=st.data())
@LONG
def test_any_message_is_the_same_bytes_elsewhere_over_many_values(case: Case, data: st.DataObject) -> None:
    check(case, data)


@for_every_version_of_others
def test_a_message_of_defaults_is_the_same_bytes_elsewhere(case: Case) -> None:
    message = case.message_type()
    encoded = bytes(encode(message, case.version))
    if knows(case.schema.name):
        assert written_again_by_kafka_python(case, encoded, message) == encoded
    assert written_again_by_kio(case, encoded) == encoded
