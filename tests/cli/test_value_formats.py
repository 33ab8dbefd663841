"""Formats of keys and values, to text or JSON and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.cli.value_formats import INTEGERS, PLAIN, STRING, read_plain, text_of, value_in, write_plain

OTHERS = [one for one in PLAIN if one != STRING]


@pytest.mark.parametrize(
    ("name", "content", "value"),
    [
        ("hex", b"\x00\xff", "00ff"),
        ("base64", b"\x00\xff", "AP8="),
        ("json", b'{"a":[1,null]}', {"a": [1, None]}),
        ("int16", b"\xff\xff", -1),
        ("int32", b"\x00\x00\x01\x00", 256),
        ("int64", b"\x80" + bytes(7), -(2**63)),
    ],
)
def test_bytes_become_a_value_and_bytes_again(name: str, content: bytes, value: Any) -> None:
    assert read_plain(name, content) == value
    assert write_plain(name, value) == content
    assert write_plain(name, value_in(name, text_of(value).encode())) == content


@pytest.mark.parametrize("name", ["json", *INTEGERS])
@given(content=st.binary(max_size=9))
def test_bytes_of_another_format_are_refused_in_words(name: str, content: bytes) -> None:
    try:
        value = read_plain(name, content)
    except ValueError:
        return
    assert read_plain(name, write_plain(name, value)) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [("hex", "0g"), ("hex", 1), ("base64", "A"), ("base64", "é"), ("int16", 2**15), ("int32", "1"), ("int64", None)],
)
def test_a_value_of_another_format_is_refused_in_words(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        write_plain(name, value)


@pytest.mark.parametrize("name", ["json", "int32", "avro"])
def test_a_line_that_is_no_json_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not JSON that can be read"):
        value_in(name, b"{")
