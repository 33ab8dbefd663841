"""Slices of files: read in pieces, each when it is asked for, between the other chunks of a reply."""

from __future__ import annotations

import pytest

from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.file_slice import FileSlice, portions_to_send
from tests.support.counted_file import CountedFile

CONTENT = bytes(range(250))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.broker.storage.file_slice.PIECE_BYTES", 100)


def test_a_slice_has_the_bytes_of_its_part_of_the_file() -> None:
    part = FileSlice(CountedFile(CONTENT), 7, 230)
    assert len(part) == 230
    pieces = list(part.pieces())
    assert b"".join(pieces) == CONTENT[7:237]
    assert [len(piece) for piece in pieces] == [100, 100, 30]


def test_a_piece_is_read_at_its_first_use() -> None:
    file = CountedFile(CONTENT)
    pieces = FileSlice(file, 0, 250).pieces()
    assert file.reads == []
    next(pieces)
    assert file.reads == [(0, 100)]
    next(pieces)
    assert file.reads == [(0, 100), (100, 100)]


def test_a_reply_is_sendable_in_portions_that_end_with_each_piece() -> None:
    first, second = FileSlice(CountedFile(CONTENT), 0, 150), FileSlice(CountedFile(b"x"), 0, 1)
    portions = portions_to_send([b"length", b"header", first, b"between", second, b"end"])
    assert [[bytes(chunk) for chunk in portion] for portion in portions] == [
        [b"length", b"header", CONTENT[:100]],
        [CONTENT[100:150]],
        [b"between", b"x"],
        [b"end"],
    ]


def test_a_read_failure_is_reported_before_it_is_raised() -> None:
    part = FileSlice(CountedFile(CONTENT, fails_from=150), 0, 250)
    reported: list[StorageError] = []
    part.failed = reported.append
    pieces = part.pieces()
    assert next(pieces) == CONTENT[:100]
    with pytest.raises(StorageError, match="Input/output error") as raised:
        next(pieces)
    assert reported == [raised.value]


def test_a_file_that_ends_before_the_slice_does_is_an_error() -> None:
    part = FileSlice(CountedFile(CONTENT), 200, 100)
    pieces = part.pieces()
    assert next(pieces) == CONTENT[200:]
    with pytest.raises(StorageError, match="ends at byte 250, before byte 300"):
        next(pieces)
