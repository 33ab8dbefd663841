"""Rising columns: whether the numbers of an index file's column rise, without Python for each of them.

The indexes of a full segment have a quarter of a million entries, and a fetch that needs them waits in one step.
"""

from __future__ import annotations

import operator
import sys
from array import array
from itertools import islice

AT_ONCE_COUNT = 2_048  # fits the processor's cache


def rises(column: array[int], *, strictly: bool = True) -> bool:
    """Return whether each number is above the one before it; not below it, if not `strictly`.

    Two thousand neighbours are compared by one subtraction of large integers, in which each number has its own bits.
    Numbers from 0 on leave the sign bit free: it is set before, and the subtraction clears it if a difference is too
    small.
    """
    width = column.itemsize
    most = min(AT_ONCE_COUNT, len(column))
    all_signs = int.from_bytes((bytes(width - 1) + b"\x80") * most, "little")
    all_steps = int.from_bytes(((b"\1" if strictly else b"\0") + bytes(width - 1)) * most, "little")
    for start in range(0, len(column) - 1, AT_ONCE_COUNT):
        piece = column[start : start + AT_ONCE_COUNT + 1]
        if sys.byteorder == "big":
            piece.byteswap()
        content = piece.tobytes()
        earlier, later = int.from_bytes(content[:-width], "little"), int.from_bytes(content[width:], "little")
        unused_bits = 8 * width * (most + 1 - len(piece))
        signs, least_steps = all_signs >> unused_bits, all_steps >> unused_bits
        if (earlier | later) & signs:
            return _rises_by_pairs(column, strictly=strictly)
        if ((later | signs) - earlier - least_steps) & signs != signs:
            return False
    return True


def _rises_by_pairs(column: array[int], *, strictly: bool) -> bool:
    numbers = column.tolist()
    return all(map(operator.lt if strictly else operator.le, numbers, islice(numbers, 1, None)))
