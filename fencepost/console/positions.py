"""Positions of a reader in the partitions of a topic, as a word of an address. Pure.

The word has the id of the topic: a topic that was deleted and made again has other records at the same offsets.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fencepost.protocol.primitives import ZERO_UUID

MOST_PARTITIONS: Final = 1_000
"""Of one word: its address must pass proxies, many of which take lines of 8 KB."""
LONGEST: Final = 16_000
_VERSION: Final = 1
_ID_BYTES: Final = 16
_LARGEST: Final = 2**63 - 1


class PositionsError(ValueError):
    """The word is none of ours."""


@dataclass(frozen=True)
class Positions:
    """Offsets by partition, of the topic with an id."""

    topic_id: bytes
    offsets: Mapping[int, int]

    def belong_to(self, topic_id: bytes) -> bool:
        """Whether the topic is the same; brokers that know no ids cannot tell."""
        return ZERO_UUID in (self.topic_id, topic_id) or self.topic_id == topic_id


def word_of(positions: Positions) -> str:
    content = bytearray([_VERSION]) + positions.topic_id
    before = -1
    for index, offset in sorted(positions.offsets.items()):
        _write(content, index - before - 1)
        _write(content, offset)
        before = index
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def positions_in(word: str) -> Positions:
    """Read a word of an address. Raises PositionsError."""
    if len(word) > LONGEST or not word.isascii():
        raise PositionsError("the address does not have positions of this console")
    try:
        content = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise PositionsError("the address does not have positions of this console") from None
    if len(content) <= _ID_BYTES or content[0] != _VERSION:
        raise PositionsError("the address does not have positions of this console")
    offsets: dict[int, int] = {}
    place, index = 1 + _ID_BYTES, -1
    while place < len(content):
        distance, place = _read(content, place)
        offset, place = _read(content, place)
        index += distance + 1
        if index >= 2**31:
            raise PositionsError("the address names a partition that cannot be")
        offsets[index] = offset
    return Positions(content[1 : 1 + _ID_BYTES], offsets)


def _write(content: bytearray, number: int) -> None:
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    content.append(number)


def _read(content: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(content) and shift < 64:
        byte = content[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number > _LARGEST:
                break
            return number, place
        shift += 7
    raise PositionsError("the address has positions that were cut off, or changed")
