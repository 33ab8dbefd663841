"""Arithmetic on sequence numbers: 31 bits, from 0 to 2147483647, then from 0 again.

Source: Kafka's DefaultRecordBatch.incrementSequence and decrementSequence.
"""

from __future__ import annotations

from typing import Final

MAXIMUM_SEQUENCE: Final = 2**31 - 1


def advance_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records after `sequence`, or before it if negative. One step from -1, "none", leads to 0."""
    return (sequence + count) & MAXIMUM_SEQUENCE
