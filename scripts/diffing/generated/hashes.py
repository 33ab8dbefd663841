"""Hashes by which Kafka decides, and ids that are made so that they decide nothing, or what is wanted."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from random import Random
from typing import Final

BUCKETS_COUNT: Final = 16
"""Of a hash table with up to twelve keys."""
COORDINATOR_PARTITIONS_COUNT: Final = 5


def java_hash(text: str) -> int:
    """String.hashCode of ASCII, without sign."""
    hashed = 0
    for character in text:
        hashed = (hashed * 31 + ord(character)) & 0xFFFFFFFF
    return hashed


def bucket(text: str) -> int:
    """Where a key is in a hash table."""
    hashed = java_hash(text)
    return (hashed ^ hashed >> 16) % BUCKETS_COUNT


def coordinator_partition(group: str) -> int:
    """Which partition of `__consumer_offsets` a group belongs to."""
    hashed = java_hash(group)
    return (hashed & 0x7FFFFFFF if hashed < 1 << 31 else (1 << 32) - hashed) % COORDINATOR_PARTITIONS_COUNT


def ids_apart(random: Random, count: int) -> list[str]:
    """Ids as clients make them up, no two of which share a bucket: there something else decides which comes first."""
    found: dict[int, str] = {}
    while len(found) < count:
        made = urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
        found.setdefault(bucket(made), made)
    return list(found.values())
