"""Formats of keys and values on the command line: bytes to text or JSON, and back. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from typing import Any, Final

from fencepost.protocol.checked_json import JsonError, parse, shown

STRING: Final = "string"
INTEGERS: Final = {"int16": ">h", "int32": ">i", "int64": ">q"}
WITH_SCHEMA: Final = ("schema", "avro", "protobuf", "json-schema")
PLAIN: Final = (STRING, "json", "hex", "base64", *INTEGERS)
FORMATS: Final = (*PLAIN, *WITH_SCHEMA)
LARGEST_BYTES: Final = 256 << 20


def read_plain(name: str, content: bytes) -> Any:
    """The value, as JSON can have it, of bytes in one of PLAIN but STRING. Raises ValueError."""
    if name == "hex":
        return content.hex()
    if name == "base64":
        return base64.b64encode(content).decode()
    if name == "json":
        try:
            return parse(content, most_bytes=LARGEST_BYTES)
        except JsonError as error:
            raise ValueError(f"it is not JSON that can be read: {error}") from None
    layout = INTEGERS[name]
    if len(content) != struct.calcsize(layout):
        raise ValueError(f"{name} has {struct.calcsize(layout)} bytes; there are {len(content):,}")
    return struct.unpack(layout, content)[0]


def write_plain(name: str, value: Any) -> bytes:
    """The bytes of a value in one of PLAIN but STRING. Raises ValueError."""
    if name == "json":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if name in INTEGERS:
        try:
            return struct.pack(INTEGERS[name], value)
        except struct.error:
            raise ValueError(f"it is no {name}: {shown(value)}") from None
    try:
        if isinstance(value, str):
            return bytes.fromhex(value) if name == "hex" else base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        pass
    raise ValueError(f"it is not {name}: {shown(value)}")


def value_in(name: str, line: bytes) -> Any:
    """The value that a line of text stands for, in a format other than STRING. Raises ValueError."""
    if name in ("hex", "base64"):
        return line.decode("utf-8", "replace").strip()
    try:
        return parse(line, most_bytes=LARGEST_BYTES)
    except JsonError as error:
        raise ValueError(f"it is not JSON that can be read: {error}") from None


def text_of(value: Any) -> str:
    """A value on a line: texts as they are, all others as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
