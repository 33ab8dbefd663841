"""Decoder for the topics of a classic member's subscription.

The broker ignores all other metadata of members. Source: Kafka's ConsumerProtocolSubscription.json, all versions.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812  # an exception class under its usual name

_HEAD = Struct(">hi")  # version, count of topics
_INT16 = Struct(">h")


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Return the topics, or None when the bytes are not a subscription: clients may send any bytes."""
    topics: set[str] = set()
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        position = _HEAD.size
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            start = position + 2
            position = start + length
            if length < 0 or position > len(metadata):
                return None
            topics.add(metadata[start:position].decode())
    except (StructError, UnicodeDecodeError):
        return None
    return topics
