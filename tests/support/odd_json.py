"""JSON that nobody's program writes and anybody may: for tests of readers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

ODD_TEXTS: Final = (
    b"",
    b"null",
    b"true",
    b"-1",
    b"1.5",
    b"1e400",
    b"1e30",
    b"NaN",
    b"-Infinity",
    b"9223372036854775807",
    b"9223372036854775808",
    b"1" + b"0" * 400,
    b"1" * 5_000,
    b'""',
    b'"soon"',
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    "\N{ARABIC-INDIC DIGIT ONE}".encode(),
    b"[]",
    b"{}",
    b"[" * 100_000,
    b"[" * 900 + b"]" * 900,
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b'{"a":1,"a":2}',
    b"\xef\xbb\xbf1",
    "1".encode("utf-16"),
)
"""Numbers beyond every range, other types, texts that cannot be encoded, nesting without end; some are no JSON."""

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def odd_json() -> st.SearchStrategy[bytes]:
    """Any JSON value, and what only looks like one."""
    return st.sampled_from(ODD_TEXTS) | _values.map(lambda value: json.dumps(value).encode())


@st.composite
def odd_object(draw: st.DrawFn, usual: Mapping[str, Any]) -> bytes:
    """An object with one or two fields of another value, or without one."""
    document = dict(usual)
    names = draw(st.lists(st.sampled_from(sorted(document)), min_size=1, max_size=2, unique=True))
    odd = [draw(odd_json()) for _ in names]
    for index, name in enumerate(names):
        if draw(st.booleans()):
            document[name] = f"odd value {index}"
        else:
            del document[name]
    text = json.dumps(document).encode()
    for index, value in enumerate(odd):
        text = text.replace(b'"odd value %d"' % index, value)
    return text


@st.composite
def odd_part(draw: st.DrawFn, usual: Any) -> bytes:
    """A value with one odd value somewhere within it."""
    odd = draw(odd_json())
    return json.dumps(_with_mark(draw, usual)).encode().replace(_MARK, odd)


_MARK: Final = b'"odd value"'


def _with_mark(draw: st.DrawFn, value: Any) -> Any:
    if not value or not isinstance(value, list | dict) or draw(st.booleans()):
        return "odd value"
    place = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
    copy = value.copy()
    copy[place] = _with_mark(draw, copy[place])
    return copy
