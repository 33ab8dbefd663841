"""Ids of members that lie in the same order wherever Kafka goes through members."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from random import Random


def ordered_id(random: Random, number: int) -> str:
    """An id of a member that comes behind those with lower numbers, up to 10: sorted, and in Kafka's hash tables."""
    while True:
        member_id = urlsafe_b64encode(bytes([4 * (number + 1)]) + random.randbytes(15)).decode().rstrip("=")
        hashed = 0
        for character in member_id:
            hashed = (31 * hashed + ord(character)) & 0xFFFFFFFF
        if (hashed ^ hashed >> 16) & 63 == number:
            return member_id
