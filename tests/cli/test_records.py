"""Records as lines, as JSON and on a terminal: what goes in comes out, and what cannot be read is explained."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.cli.records import Content, from_json, from_line, to_bytes, to_json, to_terminal
from tests.support.odd_json import odd_json, odd_object


class Consumed(NamedTuple):
    """What the printing side reads of a client's record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str = "orders"
    partition: int = 2
    offset: int = 7
    timestamp: int = 1_700_000_000_000


def test_a_line_is_a_value_and_nothing_else() -> None:
    assert from_line(b"a:1\r\xff", None, None) == Content(None, b"a:1\r\xff")


def test_a_line_is_split_at_the_first_separator() -> None:
    assert from_line(b"a:1:2", b":", None) == Content(b"a", b"1:2")
    assert from_line(b":1", b":", None) == Content(b"", b"1")
    assert from_line(b"none", b":", None) == Content(None, b"none")


def test_the_null_marker_makes_tombstones_and_null_keys() -> None:
    assert from_line(b"a:-", b":", b"-") == Content(b"a", None)
    assert from_line(b"-:1", b":", b"-") == Content(None, b"1")
    assert from_line(b"a:--", b":", b"-") == Content(b"a", b"--")


contents = st.none() | st.binary() | st.text().map(str.encode)


@given(contents, contents, st.lists(st.tuples(st.text(), contents)))
def test_what_is_printed_as_json_is_read_as_it_was(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    printed = to_json(Consumed(key, value, tuple(headers)))
    assert "\n" not in printed
    assert from_json(printed.encode()) == Content(key, value, 2, tuple(headers))


def test_json_says_where_and_when() -> None:
    shown = json.loads(to_json(Consumed(b"k", b"\xff")))
    assert (shown["topic"], shown["partition"], shown["offset"], shown["timestamp_ms"]) == (
        "orders",
        2,
        7,
        1_700_000_000_000,
    )
    assert shown["value"] == {"base64": "/w=="}


def test_a_record_without_a_time_has_none() -> None:
    assert json.loads(to_json(Consumed(None, None)._replace(timestamp=-1)))["time"] is None


def test_headers_may_be_written_as_an_object() -> None:
    assert from_json(b'{"value": "v", "headers": {"a": "1", "b": null}}').headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "expected an object"),
        (b"{}", "expected an object"),
        (b'{"value": 3}', '"value" must be text, null or'),
        (b'{"value": {"base64": "!"}}', '"value" is not base64'),
        (b'{"value": "", "key": []}', '"key" must be text'),
        (b'{"value": "", "partition": -1}', '"partition" must be a whole number'),
        (b'{"value": "", "partition": true}', '"partition" must be a whole number'),
        (b'{"value": "", "headers": 3}', '"headers" must be a list'),
        (b'{"value": "", "headers": [["a"]]}', '"headers" must be a list'),
        (b'{"value": "", "headers": [["a", 1]]}', '"headers" must be text'),
    ],
)
def test_errors_in_a_line_of_json_are_reported(line: bytes, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        from_json(line)


def test_bytes_are_printed_as_they_are() -> None:
    assert to_bytes(Consumed(None, b"\x00\xff\n"), keys=False) == b"\x00\xff\n"
    assert to_bytes(Consumed(b"k", b"v"), keys=True) == b"orders-2 @7 k: v"
    assert to_bytes(Consumed(None, None), keys=True) == b"orders-2 @7 null: null"


def test_a_terminal_gets_no_control_characters() -> None:
    assert to_terminal(Consumed(None, "é\t\x1b[31m\n\xff".encode("latin-1")), keys=False) == "\\xe9\t\\x1b[31m\\n\\xff"
    assert to_terminal(Consumed(None, "é ✓".encode()), keys=False) == "é ✓"


@given(st.binary())
def test_every_value_can_be_shown_on_a_terminal(value: bytes) -> None:
    shown = to_terminal(Consumed(None, value), keys=False)
    assert all(character.isprintable() or character == "\t" for character in shown)
    assert len(shown.splitlines()) <= 1


@given(odd_json() | odd_object({"key": "a", "value": "1", "partition": 0, "headers": [["h", "1"]], "timestamp_ms": 5}))
def test_any_json_is_a_record_that_can_be_sent_or_refused_in_a_short_line(line: bytes) -> None:
    try:
        content = from_json(line, keep_time=True)
    except ValueError as error:
        assert len(str(error)) < 300  # noqa: PT017  # most are refused, some are not
    else:
        assert all(isinstance(part, bytes | None) for part in (content.key, content.value))
        assert content.partition is None or 0 <= content.partition < 1 << 31
        assert content.timestamp_ms is None or 0 <= content.timestamp_ms < 1 << 63
        assert all(isinstance(name, str) for name, _ in content.headers)


def test_a_record_of_any_time_is_printed() -> None:
    record = Consumed(None, None)._replace(timestamp=(1 << 63) - 1)
    assert json.loads(to_json(record))["time"] == "9223372036854775807 ms"
