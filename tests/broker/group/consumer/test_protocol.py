"""What the coordinator reads from a member's subscription."""

from __future__ import annotations

import struct

import pytest

from fencepost.broker.group.consumer.protocol import subscribed_topics


def subscription(*topics: str, version: int = 3) -> bytes:
    body = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + body + b"\xff\xff\xff\xff" + b"more of later versions"


@pytest.mark.parametrize("version", range(4))
def test_topics_of_every_version_are_read(version: int) -> None:
    assert subscribed_topics(subscription("orders", "payments", version=version)) == {"orders", "payments"}


def test_a_subscription_may_be_empty() -> None:
    assert subscribed_topics(subscription()) == set()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x00",
        b"\xff\xff\x00\x00\x00\x00",
        subscription("orders")[:10],
        b"\x00\x00\x7f\xff\xff\xff",
        b"sticky-json{}",
    ],
)
def test_bytes_that_are_no_subscription_say_nothing(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
