r"""Format strings for records, with the directives of kcat's `-f`: `%t-%p @%o %k: %s\n`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from fencepost.cli.records import NULL

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PIECES: Final = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+|[%\\])", re.DOTALL)
DIRECTIVES: Final = "%t topic, %p partition, %o offset, %T time in ms, %k key, %s value, %h headers, %K, %S sizes, %%"
Piece = Callable[[Any], bytes]


def parse_format(text: str) -> Piece:
    r"""Return a function that formats a consumed record. It adds nothing: a line ends with \n. Raises ValueError."""
    pieces: list[Piece | bytes] = []
    for directive, code, escape, plain in _PIECES.findall(text):
        if directive:
            if directive not in _DIRECTIVES:
                raise ValueError(f"%{directive} is not known; known are {DIRECTIVES}")
            pieces.append(_DIRECTIVES[directive])
        elif code:
            pieces.append(bytes([int(code, 16)]))
        elif escape:
            if escape not in _ESCAPES:
                raise ValueError(f"\\{escape} is not known; known are \\n, \\t, \\r, \\0, \\\\ and \\xHH")
            pieces.append(_ESCAPES[escape])
        elif plain in ("%", "\\"):
            raise ValueError(f"it ends with {plain}; write {plain}{plain} for one")
        else:
            pieces.append(plain.encode())
    return lambda record: b"".join([piece if isinstance(piece, bytes) else piece(record) for piece in pieces])


def _content(content: bytes | None) -> bytes:
    return NULL.encode() if content is None else content


def _size(content: bytes | None) -> bytes:
    return b"-1" if content is None else b"%d" % len(content)


def _headers(record: Any) -> bytes:
    return b",".join([name.encode() + b"=" + _content(value) for name, value in record.headers or ()])


_DIRECTIVES: Final[dict[str, Piece]] = {
    "t": lambda record: bytes(record.topic.encode()),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "k": lambda record: _content(record.key),
    "s": lambda record: _content(record.value),
    "K": lambda record: _size(record.key),
    "S": lambda record: _size(record.value),
    "h": _headers,
    "%": lambda _record: b"%",
}
