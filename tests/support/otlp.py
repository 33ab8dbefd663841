"""Writes MetricsData of OTLP as clients do: the fields that they set, in their order."""

from __future__ import annotations

import struct
from collections.abc import Mapping

VARINT, FIXED64, BYTES = 0, 1, 2
DELTA, CUMULATIVE = 1, 2


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def of_bytes(number: int, content: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(content)) + content


def of_number(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)


def of_double(number: int, value: float) -> bytes:
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def attributes(field: int, values: Mapping[str, str]) -> bytes:
    return b"".join(
        of_bytes(field, of_bytes(1, key.encode()) + of_bytes(2, of_bytes(1, value.encode())))
        for key, value in values.items()
    )


def point(value: float, **values: str) -> bytes:
    number = of_double(4, value) if isinstance(value, float) else varint(6 << 3 | FIXED64) + struct.pack("<q", value)
    times = b"".join(varint(field << 3 | FIXED64) + struct.pack("<q", 10**18) for field in (2, 3))
    return times + number + attributes(7, values)


def gauge(name: str, *points: bytes) -> bytes:
    return of_bytes(1, name.encode()) + of_bytes(5, b"".join(of_bytes(1, one) for one in points))


def total(name: str, *points: bytes, temporality: int = DELTA) -> bytes:
    data = b"".join(of_bytes(1, one) for one in points) + of_number(2, temporality) + of_number(3, 1)
    return of_bytes(1, name.encode()) + of_bytes(7, data)


def metrics_data(*metrics: bytes, **resource: str) -> bytes:
    scope = b"".join(of_bytes(2, metric) for metric in metrics)
    return of_bytes(1, of_bytes(1, attributes(1, resource)) + of_bytes(2, scope))
