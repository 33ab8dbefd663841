"""Ids of objects: each tells which incarnation of which node has made it.

An object counts only through a row, and a row is committed only under the fence of its flush or seal. So an object
without a row, of an incarnation whose fence was raised, is never needed any more; no clock is asked. The id is a UUID
of version 8 (RFC 9562): the node's id in 32 bits, the fence in 46, and a number in 44. Brokers that work on tables of
format 3 choose random ids, of version 4.
"""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

FENCE_BITS: Final = 46
NUMBER_BITS: Final = 44
_VERSION: Final = 8
_VARIANT: Final = 0b10
_NODE_BITS: Final = 32


class Uploader(NamedTuple):
    """An incarnation of a node, by the fence under which it commits rows."""

    node_id: int
    fence: int


class ObjectIds:
    """Ids for one process. They begin at a random number: two processes that have the same fence, of a database that
    went back in time, choose no ids in common."""

    def __init__(self) -> None:
        self._number = uuid.uuid4().int

    def new(self, uploader: Uploader) -> uuid.UUID:
        """An id that no object has."""
        assert 0 <= uploader.node_id < 1 << _NODE_BITS, uploader
        assert 0 <= uploader.fence < 1 << FENCE_BITS, uploader
        self._number += 1
        value = (uploader.node_id << FENCE_BITS | uploader.fence) << NUMBER_BITS
        value |= self._number & _mask(NUMBER_BITS)
        high, middle, low = value >> 74, value >> 62 & _mask(12), value & _mask(62)
        return uuid.UUID(int=high << 80 | _VERSION << 76 | middle << 64 | _VARIANT << 62 | low)


def uploader_of(object_id: uuid.UUID) -> Uploader | None:
    """The uploader of an object; None for ids of earlier versions."""
    if object_id.version != _VERSION:
        return None
    whole = object_id.int
    value = whole >> 80 << 74 | (whole >> 64 & _mask(12)) << 62 | whole & _mask(62)
    return Uploader(value >> FENCE_BITS + NUMBER_BITS, value >> NUMBER_BITS & _mask(FENCE_BITS))


def _mask(bits: int) -> int:
    return (1 << bits) - 1
