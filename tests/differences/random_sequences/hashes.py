"""Hashes by which Kafka decides, and ids that are made so that they decide nothing, or what is wanted."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from random import Random
from typing import Final

BUCKETS_COUNT: Final = 16
"""Of a hash table with up to twelve keys."""
MANY_BUCKETS_COUNT: Final = 64
COORDINATOR_PARTITIONS_COUNT: Final = 5


def java_hash(text: str) -> int:
    """String.hashCode of ASCII, without sign."""
    hashed = 0
    for character in text:
        hashed = (hashed * 31 + ord(character)) & 0xFFFFFFFF
    return hashed


def bucket(text: str, buckets_count: int = BUCKETS_COUNT) -> int:
    """Where a key is in a hash table."""
    hashed = java_hash(text)
    return (hashed ^ hashed >> 16) % buckets_count


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


def ordered_id(random: Random, number: int) -> str:
    """An id of a member that comes behind those with lower numbers, up to 10: sorted, and in Kafka's hash tables."""
    while True:
        member_id = urlsafe_b64encode(bytes([4 * (number + 1)]) + random.randbytes(15)).decode().rstrip("=")
        if bucket(member_id, MANY_BUCKETS_COUNT) == number:
            return member_id
