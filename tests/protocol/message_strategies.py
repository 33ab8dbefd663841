"""Hypothesis strategies for message objects, derived from the declarations; and the list of all (message, version)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from fencepost.protocol.declaration import (
    FIRST_OWN_TAG,
    ArrayOf,
    Field,
    MessageSchema,
    StructOf,
    StructSchema,
    WireType,
    struct_schema_of,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import REQUESTS, RESPONSES
from fencepost.protocol.primitives import BYTES, RECORDS, STRING, FixedWidth
from fencepost.protocol.schema import schema_of
from tests.protocol.newer_messages import HIGHEST_ERROR_OF_OTHERS, highest_of_others

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

SHORT = settings(
    max_examples=3,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LONG = settings(SHORT, max_examples=300)


def api_name(message_type: type[Any]) -> str:
    return re.sub("(Request|Response)$", "", message_type.__name__)


class Case(NamedTuple):
    """One message at one version."""

    message_type: type[Any]
    version: int

    @property
    def schema(self) -> MessageSchema:
        return schema_of(self.message_type)

    @property
    def api_name(self) -> str:
        return api_name(self.message_type)

    @property
    def kind(self) -> str:
        return "request" if self.schema.is_request else "response"


ALL_TYPES = sorted([*REQUESTS.values(), *RESPONSES.values()], key=lambda message_type: message_type.__name__)
ALL_CASES = [Case(message_type, version) for message_type in ALL_TYPES for version in schema_of(message_type).versions]

for_every_message = pytest.mark.parametrize("message_type", ALL_TYPES, ids=lambda message_type: message_type.__name__)


def layout(schema: StructSchema, version: int) -> list[tuple[Any, ...]]:
    """The fields that a version has, and how they are written."""
    found = []
    for field in schema.fields:
        if version in field.versions:
            inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
            fields = layout(struct_schema_of(inner.python_class), version) if isinstance(inner, StructOf) else None
            found.append((field.name, version in field.nullable, version in field.tagged, fields))
    return found


def differs_from_the_version_before(case: Case) -> bool:
    before = case.version - 1
    flexible = case.schema.flexible
    return (
        before not in case.schema.versions
        or (before in flexible) != (case.version in flexible)
        or layout(case.schema, before) != layout(case.schema, case.version)
    )


def parameters(cases: Iterable[Case]) -> list[Any]:
    """Versions that are written as those before them take their turn among the tests that take long."""
    return [
        pytest.param(
            case,
            id=f"{case.message_type.__name__}-v{case.version}",
            marks=[] if differs_from_the_version_before(case) else [pytest.mark.long],
        )
        for case in cases
    ]


CASES_OF_OTHERS = [case for case in ALL_CASES if case.version <= highest_of_others(case.api_name)]

for_every_version: Callable[[Any], Any] = pytest.mark.parametrize(
    "case", ALL_CASES, ids=lambda case: f"{case.message_type.__name__}-v{case.version}"
)
for_every_layout: Callable[[Any], Any] = pytest.mark.parametrize("case", parameters(ALL_CASES))
for_every_version_of_others: Callable[[Any], Any] = pytest.mark.parametrize(
    "case", CASES_OF_OTHERS, ids=lambda case: f"{case.message_type.__name__}-v{case.version}"
)
for_every_layout_of_others: Callable[[Any], Any] = pytest.mark.parametrize("case", parameters(CASES_OF_OTHERS))


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def messages(case: Case) -> st.SearchStrategy[Any]:
    """Objects of a message with values in every field that the version has.

    Values stay within what kio's typed classes take: error codes that exist, times from 1970 on. Fields of our own
    keep their defaults, and so are not there: nobody else has them.
    """
    return structs(case.schema, case.version)


def is_own(field: Field) -> bool:
    """Whether a field is not Kafka's."""
    return field.tag is not None and field.tag >= FIRST_OWN_TAG


def structs(schema: StructSchema, version: int) -> st.SearchStrategy[Any]:
    present = [field for field in schema.fields if version in field.versions and not is_own(field)]
    return st.builds(schema.python_class, **{field.name: field_values(field, version) for field in present})


def field_values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values: st.SearchStrategy[Any]
    if field.name.endswith("error_code"):
        values = st.sampled_from([int(code) for code in ErrorCode if code <= HIGHEST_ERROR_OF_OTHERS])
    elif isinstance(field.type, FixedWidth) and re.search("(_ms|timestamp|duration_filter)$", field.name):
        values = st.integers(0, 2**31 - 1)
    else:
        values = wire_values(field.type, version)
    return st.none() | values if version in field.nullable else values


def wire_values(wire_type: WireType, version: int) -> st.SearchStrategy[Any]:
    if isinstance(wire_type, ArrayOf):
        return st.lists(wire_values(wire_type.element, version), max_size=3)
    if isinstance(wire_type, StructOf):
        return structs(struct_schema_of(wire_type.python_class), version)
    if isinstance(wire_type, FixedWidth):
        if wire_type.name == "bool":
            return st.booleans()
        if wire_type.name == "uuid":
            return st.just(bytes(16)) | st.binary(min_size=16, max_size=16)
        if wire_type.name == "uint16":
            return st.integers(0, 2**16 - 1)
        if wire_type.name == "float64":
            return st.floats(allow_nan=False)  # which is not even equal to itself
        edge = 2 ** (INTEGER_BITS[wire_type.name] - 1)
        return st.integers(-edge, edge - 1)
    if wire_type is STRING:
        return st.text(max_size=6) | st.sampled_from(["x" * 126, "x" * 127, "é" * 64, "x" * 300])
    assert wire_type in (BYTES, RECORDS)
    return st.binary(max_size=6) | st.sampled_from([b"\x01" * 127, b"\x02" * 2_000])
