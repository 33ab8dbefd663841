"""Which partition of its topic a coordinator keeps an id in."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

LEAST_INT32: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, with the overflow of 32 bits."""
    units = text.encode("utf-16-be", errors="surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[position : position + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(name: str, partitions: int) -> int:
    """The partition of `__transaction_state` or `__consumer_offsets` that has an id. Source: Kafka's Utils.abs."""
    value = java_hash(name)
    return (0 if value == LEAST_INT32 else abs(value)) % partitions


@lru_cache(8)
def name_of_each(partitions: int) -> tuple[str, ...]:
    """For each partition an id that it has: to ask whether it answers."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        name = f"{number:x}-is-anybody-there"
        found.setdefault(partition_of(name, partitions), name)
        number += 1
    return tuple(found[index] for index in range(partitions))
