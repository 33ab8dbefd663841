"""Bit sets of the operations that a client may do."""

from __future__ import annotations

from fencepost.broker.rights.authorized_operations import (
    GROUP_BITS,
    NOT_ASKED_FOR,
    cluster_operations,
    topic_operations,
)


def test_bits_are_those_of_kafka() -> None:
    """As Kafka 4.4 answers a client with all rights."""
    assert topic_operations(asked_for=True) == 0b0000_1101_1111_1000
    assert cluster_operations(asked_for=True) == 0b0001_1111_1010_0000
    assert sum(1 << bit for bit in (3, 6, 8, 10, 11)) == GROUP_BITS


def test_without_a_question_there_is_the_least_number() -> None:
    assert topic_operations(asked_for=False) == cluster_operations(asked_for=False) == NOT_ASKED_FOR == -(2**31)
