"""Whatever JSON others write is read as what it says, or refused with a short reason; nothing else, and at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from hypothesis import given

from fencepost.protocol.checked_json import (
    INT32_MAX,
    MOST_LEVELS,
    Fields,
    JsonError,
    parse,
    parse_object,
    text_or_base64,
)
from tests.support.odd_json import ODD_TEXTS, odd_json


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "it is not JSON"),
        (b"[1", "it is not JSON"),
        (b"\xff", "it is not UTF-8"),
        (b'"\xed\xa0\x80"', "it is not UTF-8"),
        ("1".encode("utf-16"), "it is not UTF-8"),
        ('"\ud800"', "it is not UTF-8"),
        (b'"\\ud800"', "it has half of a surrogate pair"),
        (b"NaN", "NaN is not JSON"),
        (b"-Infinity", "-Infinity is not JSON"),
        (b"[1e400]", "beyond the range of a double"),
        (b"9223372036854775808", "more than 64 bits"),
        (b"1" * 5_000, "more than 64 bits"),
        (b'{"a":1,"a":2}', "a key twice"),
        (b"[" * 200_000, "nested more than 64 levels deep"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "nested more than 64 levels deep"),
    ],
)
def test_json_without_one_meaning_is_refused_with_its_reason(text: bytes | str, reason: str) -> None:
    with pytest.raises(JsonError, match=reason):
        parse(text)


def test_brackets_within_texts_are_no_levels() -> None:
    texts = ["[" * 1_000, '\\"[{', "]" * 1_000]
    assert parse(json.dumps(texts)) == texts
    assert parse("[" * MOST_LEVELS + "]" * MOST_LEVELS)


def test_pairs_of_surrogates_are_one_character() -> None:
    assert parse(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_more_bytes_than_asked_for_are_not_looked_at() -> None:
    with pytest.raises(JsonError, match="it has 3 bytes; at most 2 are read"):
        parse(b"[1]", most_bytes=2)


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 500_000, b"[" * 1_000_000, b'"[' * 500_000, b'[""' * 300_000])
def test_the_search_for_levels_is_linear_in_the_text(text: bytes) -> None:
    begun_s = time.process_time()
    with pytest.raises(JsonError):
        parse(text)
    assert time.process_time() - begun_s < 5  # a quadratic one takes hours


@given(odd_json())
def test_every_value_is_read_as_python_reads_it_or_refused_in_a_short_line(text: bytes) -> None:
    reason = ""
    try:
        found = parse(text)
    except JsonError as error:
        reason = str(error)
    else:
        assert found == json.loads(text)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    assert len(reason) < 200
    assert reason.isprintable()


@given(odd_json())
def test_a_field_of_any_value_is_of_its_type_and_range_or_refused(text: bytes) -> None:
    try:
        fields = Fields({"a": parse(text)})
    except JsonError:
        return
    checks: dict[Callable[[str], Any], Callable[[Any], bool]] = {
        fields.text: lambda found: isinstance(found, str),
        fields.whole: lambda found: type(found) is int and 0 <= found < 1 << 63,
        fields.time_ms: lambda found: type(found) is int and 0 <= found < 1 << 48,
        fields.flag: lambda found: type(found) is bool,
        fields.array: lambda found: isinstance(found, list),
        fields.texts: lambda found: all(isinstance(one, str) for one in found),
        fields.object: lambda found: isinstance(found, Fields),
        fields.objects: lambda found: all(isinstance(one, Fields) for one in found),
    }
    for read, check in checks.items():
        reason = "'a'"
        try:
            assert check(read("a"))
        except JsonError as error:
            reason = str(error)
        assert reason.startswith(("'a'", "a ", "a["))
        assert len(reason) < 200


def test_a_message_names_the_field_and_what_it_holds() -> None:
    fields = parse_object(b'{"to": {"count": true, "colour": "green", "long": "%s"}}' % (b"x" * 1_000)).object("to")
    with pytest.raises(JsonError, match=r"'to.count' must be a whole number from 0 to 2147483647; it is True"):
        fields.whole("count", 0, INT32_MAX)
    with pytest.raises(JsonError, match=r"'to.colour' must be one of red, blue; it is 'green'"):
        fields.one_of("colour", Colour)
    with pytest.raises(JsonError, match=r"'to.size' is missing"):
        fields.whole("size")
    with pytest.raises(JsonError) as refused:
        fields.whole("long")
    assert len(str(refused.value)) < 200
    assert fields.text_or_none("size") is None
    assert fields.one_of_or_none("size", Colour) is None


def test_the_odd_texts_are_refused_or_of_one_meaning() -> None:
    refused = 0
    for text in ODD_TEXTS:
        try:
            parse(text)
        except JsonError:
            refused += 1
    assert refused == 17


def test_bytes_are_written_as_text_or_in_base64() -> None:
    assert text_or_base64(None) is None
    assert text_or_base64("é".encode()) == "é"
    assert text_or_base64(b"\xff\x00") == {"base64": "/wA="}
