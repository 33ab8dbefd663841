"""Single records of format version 2."""

from __future__ import annotations

import pytest

from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record import FoundRecord, find_record, plain_record, read_record, write_record

HEADERS = (("a", b"1"), ("a", None))


def written(key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> bytes:
    out = bytearray()
    write_record(out, key, value, 7, 2, headers)
    return bytes(out)


@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("value", [None, b"", b"v" * 200])
@pytest.mark.parametrize("headers", [(), HEADERS])
def test_a_record_is_read_as_it_was_written(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    content = written(key, value, headers)
    record, end = read_record(content, 0, base_offset=40, base_timestamp_ms=1_000)
    assert end == len(content)
    assert record == (42, 1_007, key, value, headers)


def test_the_time_of_the_append_replaces_that_of_the_record() -> None:
    record, _ = read_record(written(b"k", b"v"), 0, base_offset=0, base_timestamp_ms=1_000, append_time_ms=5)
    assert record.timestamp_ms == 5


def test_a_plain_record_is_one_with_the_time_of_its_batch_and_no_headers() -> None:
    out = bytearray()
    write_record(out, b"k", None, 0, 3)
    assert plain_record(b"k", None, 3) == bytes(out)


def test_the_first_record_with_the_distances_is_found_and_its_position() -> None:
    content = bytearray()
    starts = []
    for delta in range(4):
        starts.append(len(content))
        write_record(content, b"k", b"v", delta * 10, delta)
    assert find_record(bytes(content), 0, 4, 15, 0) == (starts[2], FoundRecord(20, 2))
    assert find_record(bytes(content), 0, 4, 0, 3) == (starts[3], FoundRecord(30, 3))
    assert find_record(bytes(content), 0, 4, 99, 0) == (len(content), None)


def test_a_record_cut_at_any_byte_or_longer_than_it_says_is_refused() -> None:
    content = written(b"key", b"value", HEADERS)
    for length in range(len(content)):
        with pytest.raises(DecodeError):
            read_record(content[:length], 0, base_offset=0, base_timestamp_ms=0)
    with pytest.raises(DecodeError, match="not as long as it says"):
        read_record(bytes([content[0] + 2]) + content[1:] + b"\0", 0, base_offset=0, base_timestamp_ms=0)
