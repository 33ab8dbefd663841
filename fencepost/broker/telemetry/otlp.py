"""Numbers of a push: the part of OTLP's MetricsData that clients of Kafka send, read within bounds. Pure.

Our own, because a library decodes a message whole, in one step: see
docs/decisions/0035-metrics-of-clients.md.
Source: opentelemetry/proto/metrics/v1/metrics.proto, and the wire format of protocol buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

MOST_FIELDS: Final = 200_000
"""Fields that are read of one push: of more than 10,000 series. It takes 0.2 s, in slices."""
MOST_FIELDS_OF_A_POINT: Final = 200
MOST_FIELDS_OF_AN_ATTRIBUTE: Final = 10
"""A point is read in one step with its attributes, of which each may have that many fields, and its value, too."""
LONGEST_NAME: Final = 256
LONGEST_ATTRIBUTES: Final = 512
"""Characters that are kept of the name and of the attributes of a series."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT_BITS: Final = 70
_DOUBLE: Final = struct.Struct("<d")
_SIGNED_64: Final = struct.Struct("<q")
_GAUGE, _SUM = 5, 7
_DELTA: Final = 1

Value = int | memoryview
"""An integer, or the bytes of a string, a message or a number of fixed length."""


class OtlpError(ValueError):
    """Bytes that are no MetricsData, or more than is read: one line."""


class Point(NamedTuple):
    """One number. attributes: as `name=value,…`. is_delta: whether it is the difference to the push before."""

    name: str
    attributes: str
    value: float
    is_delta: bool


def read_points(content: memoryview) -> Generator[Point | None, None, None]:
    """Read the gauges and sums of a MetricsData; None is a moment at which others may run. Raises OtlpError.

    Histograms and summaries, which clients of Kafka do not send, are passed over.
    """
    fields = _Fields()
    for number, resource_metrics in fields.of(content):
        yield None
        if number != 1:
            continue
        resource_attributes: list[str] = []
        for number, part in fields.of(_message(resource_metrics)):
            yield None
            if number == 1:
                resource_attributes += fields.attributes(_message(part), 1)
            elif number == 2:
                for number, metric in fields.of(_message(part)):
                    if number == 2:
                        yield from _points_of_metric(fields, _message(metric), resource_attributes)
                    else:
                        yield None


def _points_of_metric(
    fields: _Fields, metric: memoryview, resource_attributes: list[str]
) -> Generator[Point | None, None, None]:
    name = ""
    data: list[tuple[int, memoryview]] = []
    for number, value in fields.of(metric):
        yield None
        if number == 1:
            name = _text(value)[:LONGEST_NAME]
        elif number in (_GAUGE, _SUM):
            data = [(number, _message(value))]  # of several the last counts, as one of them may be set
    for kind, content in data:
        points: list[memoryview] = []
        temporality = 0
        for number, value in fields.of(content):
            yield None
            if number == 1:
                points.append(_message(value))
            elif number == 2 and isinstance(value, int):
                temporality = value
        for point in points:
            found = fields.number_of(point)
            if found is None:
                yield None
                continue
            attributes = ",".join(resource_attributes + fields.attributes(point, 7))[:LONGEST_ATTRIBUTES]
            yield Point(name, attributes, found, kind == _SUM and temporality == _DELTA)


class _Fields:
    """The fields of a push's messages, of which a bounded number is read."""

    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def of(self, content: memoryview, most: int = MOST_FIELDS) -> Iterator[tuple[int, Value]]:
        """Read the fields of one message: numbers and values."""
        position, end = 0, len(content)
        while position < end:
            self._left -= 1
            most -= 1
            if self._left < 0 or most < 0:
                raise OtlpError("a message with more fields than are read")
            tag, position = _varint(content, position)
            kind = tag & 7
            if kind == _VARINT:
                value, position = _varint(content, position)
                yield tag >> 3, value
                continue
            if kind == _BYTES:
                length, position = _varint(content, position)
            elif kind == _FIXED64:
                length = 8
            elif kind == _FIXED32:
                length = 4
            else:
                raise OtlpError(f"a field of the wire type {kind}")
            if length > end - position:
                raise OtlpError("a field that is longer than its message")
            yield tag >> 3, content[position : position + length]
            position += length

    def attributes(self, content: memoryview, wanted: int) -> list[str]:
        """Read the attributes of a point or a resource, whose field is `wanted`, in one step."""
        found = []
        for number, value in self.of(content, MOST_FIELDS_OF_A_POINT):
            if number == wanted:
                key = text = ""
                for number, part in self.of(_message(value), MOST_FIELDS_OF_AN_ATTRIBUTE):
                    if number == 1:
                        key = _text(part)
                    elif number == 2:
                        text = self._any_value(_message(part))
                found.append(f"{key}={text}"[:LONGEST_ATTRIBUTES])
        return found

    def _any_value(self, content: memoryview) -> str:
        text = ""
        for number, value in self.of(content, MOST_FIELDS_OF_AN_ATTRIBUTE):
            if number == 1:
                text = _text(value)
            elif number == 2:
                text = "true" if value else "false"
            elif number == 3 and isinstance(value, int):
                text = str(value - 2**64 if value >= 2**63 else value)
            elif number == 4:
                text = repr(_fixed(_DOUBLE, value))
        return text

    def number_of(self, point: memoryview) -> float | None:
        """Read the number of a point, in one step; None if it has none."""
        found = None
        for number, value in self.of(point, MOST_FIELDS_OF_A_POINT):
            if number == 4:
                found = _fixed(_DOUBLE, value)
            elif number == 6:
                found = float(_fixed(_SIGNED_64, value))
        return found


def _varint(content: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(content) and shift < _LONGEST_VARINT_BITS:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise OtlpError("a number that does not end")


def _message(value: Value) -> memoryview:
    if isinstance(value, int):
        raise OtlpError("a number instead of a message")
    return value


def _text(value: Value) -> str:
    return bytes(_message(value)[: 4 * LONGEST_ATTRIBUTES]).decode("utf-8", "replace")


def _fixed(kind: struct.Struct, value: Value) -> float:
    content = _message(value)
    if len(content) != kind.size:
        raise OtlpError("a number of another length")
    number: float = kind.unpack(content)[0]
    return number
