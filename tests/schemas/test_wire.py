"""How a record names its schema."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.schemas.schema import SchemaError
from fencepost.schemas.wire import in_front, in_header, read_indexes, with_prefix

GUID = UUID("0b7a1d3e-5555-4a4a-8f8f-123456789abc")


def test_an_id_stands_in_front() -> None:
    named = in_front(b"\x00\x00\x00\x01\x00abc")
    assert named is not None
    assert (named.identity, named.rest) == (256, b"abc")


@pytest.mark.parametrize("content", [b"", b"\x00", b"\x00\x00\x00\x01", b"text", b"\x00\xff\xff\xff\xff", b"\x01" * 40])
def test_other_content_names_no_schema(content: bytes) -> None:
    assert in_front(content) is None


def test_a_header_names_the_schema_of_its_part() -> None:
    headers = [("trace", b"x"), ("__value_schema_id", b"\x01" + GUID.bytes + b"\x00")]
    named = in_header("value", headers)
    assert named is not None
    assert (named.identity, named.rest) == (GUID, b"\x00")
    assert in_header("key", headers) is None
    assert in_header("value", [("__value_schema_id", b"short"), ("__key_schema_id", None)]) is None


@pytest.mark.parametrize(
    ("written", "indexes"), [(b"\x00", (0,)), (b"\x02\x00", (0,)), (b"\x02\x02", (1,)), (b"\x04\x02\x80\x02", (1, 128))]
)
def test_indexes_lead_to_a_message(written: bytes, indexes: tuple[int, ...]) -> None:
    assert read_indexes(written + b"rest") == (indexes, b"rest")


@given(st.binary(max_size=40))
def test_damaged_indexes_are_a_schema_error_and_nothing_else(content: bytes) -> None:
    try:
        indexes, rest = read_indexes(content)
    except SchemaError:
        return
    assert len(indexes) <= 32
    assert content.endswith(rest)


@given(st.integers(0, 2**31 - 1), st.none() | st.lists(st.integers(0, 2**20), min_size=1, max_size=32), st.binary())
def test_a_written_prefix_is_read_again(schema_id: int, indexes: list[int] | None, content: bytes) -> None:
    named = in_front(with_prefix(schema_id, None if indexes is None else tuple(indexes), content))
    assert named is not None
    assert named.identity == schema_id
    assert named.rest == content if indexes is None else read_indexes(named.rest) == (tuple(indexes), content)
