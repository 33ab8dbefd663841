"""The part of a write-ahead log behind its last valid transaction, which SQLite drops without a message.

Each commit is synced before the next one is written. So a transaction with another one behind it was acknowledged, and
if SQLite does not read it, the file is damaged. A loss of power may have torn the last one of the file.
Source: SQLite's "WAL-mode File Format".
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_MAGICS: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""The byte order of the checksums, by the first number of the file."""
_DEFAULT_PAGE_BYTES: Final = 4096
_PAGE_SIZES: Final = frozenset(1 << power for power in range(9, 17))
_MASK: Final = 0xFFFFFFFF


class DroppedTail(NamedTuple):
    """lost_commits: transactions that had been synced and are not read any more.
    is_torn: whether the last transaction of the file is not read, and nothing shows that it was ever synced.
    """

    lost_commits: int = 0
    is_torn: bool = False


class _Frame(NamedTuple):
    salts: bytes
    is_commit: bool


def dropped_tail(content: bytes) -> DroppedTail:
    """Return the part of a log with this content behind its last valid transaction."""
    if len(content) <= HEADER_BYTES:
        return DroppedTail()
    magic, page_bytes = struct.unpack_from(">I4xI", content)
    order = _MAGICS.get(magic)
    if page_bytes not in _PAGE_SIZES:
        order, page_bytes = None, _DEFAULT_PAGE_BYTES
    frames = _frames(content, page_bytes)
    if not frames:
        return DroppedTail()
    salts, first = content[16:24], frames[0].salts
    if order is None or _checksum(content[:24], order, (0, 0)) != struct.unpack_from(">2I", content, 24):
        salts, valid_count = first, 0
    elif first != salts and 0 < (_salt(first) - _salt(salts)) & _MASK < 1 << 31:
        salts, valid_count = first, 0  # the frames are of a later time than the header
    else:
        valid_count = _valid_count(content, page_bytes, order, frames)
    behind = [frame for frame in frames[valid_count:] if frame.salts == salts]
    commits = sum(frame.is_commit for frame in behind)
    ends_whole = bool(behind) and behind[-1].is_commit
    return DroppedTail(commits - ends_whole, ends_whole)


def _salt(salts: bytes) -> int:
    return int.from_bytes(salts[:4], "big")


def _frames(content: bytes, page_bytes: int) -> list[_Frame]:
    step = _FRAME_HEADER_BYTES + page_bytes
    last = len(content) - _FRAME_HEADER_BYTES
    return [
        _Frame(content[start + 8 : start + 16], content[start + 4 : start + 8] != bytes(4))
        for start in range(HEADER_BYTES, last + 1, step)
    ]


def _valid_count(content: bytes, page_bytes: int, order: str, frames: list[_Frame]) -> int:
    """Return how many frames SQLite reads: those up to the last commit before the first bad checksum."""
    salts = content[16:24]
    running: tuple[int, int] = struct.unpack_from(">2I", content, 24)
    count = 0
    for slot, frame in enumerate(frames):
        start = HEADER_BYTES + slot * (_FRAME_HEADER_BYTES + page_bytes)
        page = content[start + _FRAME_HEADER_BYTES : start + _FRAME_HEADER_BYTES + page_bytes]
        if frame.salts != salts or len(page) < page_bytes or content[start : start + 4] == bytes(4):
            break
        running = _checksum(page, order, _checksum(content[start : start + 8], order, running))
        if running != struct.unpack_from(">2I", content, start + 16):
            break
        if frame.is_commit:
            count = slot + 1
    return count


def _checksum(content: bytes, order: str, running: tuple[int, int]) -> tuple[int, int]:
    first, second = running
    words = iter(struct.unpack(f"{order}{len(content) // 4}I", content))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & _MASK
        second = (second + other + first) & _MASK
    return first, second
