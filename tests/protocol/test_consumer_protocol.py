"""Subscriptions and assignments of the classic protocol."""

from __future__ import annotations

import pytest

from fencepost.protocol.consumer_protocol import (
    HIGHEST_VERSION,
    ConsumerProtocolAssignment,
    ConsumerProtocolTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from fencepost.protocol.primitives import DecodeError

ASSIGNMENT = ConsumerProtocolAssignment([ConsumerProtocolTopicPartitions("t", [0, 2])], b"data")


def test_a_subscription_of_version_0_has_topics_and_owns_nothing() -> None:
    decoded = decode_subscription(bytes.fromhex("0000 00000001 0001 74 ffffffff"))
    assert (decoded.topics, decoded.user_data, decoded.owned_partitions) == (["t"], None, [])


def test_a_later_version_is_read_as_the_highest_that_is_known() -> None:
    content = encode_assignment(ASSIGNMENT, 99)
    assert version_of(content) == HIGHEST_VERSION
    assert decode_assignment(b"\x00\x63" + content[2:]) == ASSIGNMENT


@pytest.mark.parametrize("content", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x09"])
def test_bytes_that_are_no_subscription_are_refused(content: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_subscription(content)
