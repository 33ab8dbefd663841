"""The partition that a key goes to, as Kafka's Java client chooses it: murmur2 of the key's bytes."""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFFFFFF
_FACTOR: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key. Source: Kafka's BuiltInPartitioner."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(content: bytes) -> int:
    """32 bits, without a sign. Source: Kafka's Utils.murmur2."""
    value = (_SEED ^ len(content)) & _MASK
    whole = len(content) & ~3
    for place in range(0, whole, 4):
        word = int.from_bytes(content[place : place + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        value = (value * _FACTOR & _MASK) ^ word
    rest = content[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    return value ^ value >> 15
