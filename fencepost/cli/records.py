"""Formats of records on the command line: lines of bytes, text for a terminal, JSON objects."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.cli.output import format_time
from fencepost.protocol.checked_json import INT32_MAX, JsonError, parse, shown, text_or_base64

LARGEST_LINE_BYTES = 256 << 20
"""Above any record that a broker takes."""
Convert = Callable[[str, Any], bytes | None]
NULL = "null"
"""The text for a null key or value outside JSON."""


class Content(NamedTuple):
    """Fields of a record to write. value None: a tombstone; partition None: the key decides; time in ms since 1970."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


def from_line(line: bytes, key_separator: bytes | None, null_marker: bytes | None) -> Content:
    """Parse a line without its newline: the whole line is the value, or the first separator splits key and value."""
    key, value = None, line
    if key_separator is not None and key_separator in line:
        key, value = line.split(key_separator, 1)
    if null_marker is None:
        return Content(key, value)
    return Content(None if key == null_marker else key, None if value == null_marker else value)


def from_json(line: bytes, *, keep_time: bool = False, convert: Convert | None = None) -> Content:
    """Parse an object as `to_json` makes it; only `value` is required. Raises ValueError.

    keep_time: `timestamp_ms` counts, too. convert: makes the bytes of `key` and `value`, in place of `to_bytes_of`.
    """
    try:
        document = parse(line, most_bytes=LARGEST_LINE_BYTES)
    except JsonError as error:
        raise ValueError(f"not JSON that can be read: {error}") from None
    if not isinstance(document, dict) or "value" not in document:
        raise ValueError('expected an object such as {"key": "a", "value": "1"}; "value" may be null')
    partition = document.get("partition")
    if partition is not None and (type(partition) is not int or not 0 <= partition <= INT32_MAX):
        raise ValueError(f'"partition" must be a whole number, 0 or more; got {shown(partition)}')
    timestamp_ms = document.get("timestamp_ms") if keep_time else None
    if timestamp_ms is not None and (type(timestamp_ms) is not int or not -1 <= timestamp_ms < 1 << 63):
        raise ValueError(f'"timestamp_ms" must be milliseconds since 1970; got {shown(timestamp_ms)}')
    headers = document.get("headers") or []
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise ValueError('"headers" must be a list of [name, value] pairs')
    content_headers = tuple((name, to_bytes_of("headers", content)) for name, content in pairs)
    return Content(
        (convert or to_bytes_of)("key", document.get("key")),
        (convert or to_bytes_of)("value", document["value"]),
        partition,
        content_headers,
        None if timestamp_ms == -1 else timestamp_ms,
    )


def to_json(record: Any) -> str:
    """Format a consumed record as one line of JSON, of `fields_of`."""
    return json.dumps(fields_of(record), ensure_ascii=False)


def fields_of(record: Any) -> dict[str, Any]:
    """Return the JSON fields of a consumed record: those that `from_json` reads, its position and time."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "time": format_time(record.timestamp),
        "key": text_or_base64(record.key),
        "value": text_or_base64(record.value),
        "headers": [[name, text_or_base64(value)] for name, value in record.headers or ()],
    }


def to_bytes(record: Any, *, keys: bool) -> bytes:
    """A consumed record's value, byte for byte; with `keys`, after its position and key."""
    value: bytes = NULL.encode() if record.value is None else record.value
    if not keys:
        return value
    key = NULL.encode() if record.key is None else record.key
    return b"%s-%d @%d %s: %s" % (record.topic.encode(), record.partition, record.offset, key, value)


def to_terminal(record: Any, *, keys: bool) -> str:
    """As `to_bytes`, for a terminal: control characters and bytes that are not text are escaped."""
    return escaped(to_bytes(record, keys=keys))


def escaped(content: bytes, *, kept: str = "\t") -> str:
    """Bytes for a terminal; control characters other than the kept ones, and bytes that are not text, are escaped."""
    text = content.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in kept else _escaped(character) for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def to_bytes_of(name: str, content: Any) -> bytes | None:
    """The bytes of a text, or of `{"base64": …}`; None for null. Raises ValueError; name: of the field, for that."""
    if content is None:
        return None
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, Mapping) and isinstance(content.get("base64"), str):
        try:
            return base64.b64decode(content["base64"], validate=True)
        except ValueError as error:  # binascii's, or not ASCII
            raise ValueError(f'"{name}" is not base64: {error}') from None
    raise ValueError(f'"{name}" must be text, null or {{"base64": "…"}}; got {shown(content)}')
