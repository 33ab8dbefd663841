"""A flipped bit before a batch's checksum: the scan finds the true value from the bytes around the batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.inspection.segment_scan import Damaged, Mended, Whole, scan_segment
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.record_batch import BatchHeader, Record, build_batch, read_header

BASE_OFFSET = 100
SIZES = (1, 3, 2, 1, 5)
"""Records of the batches."""
GAP = 40


def batches(*, gap_before: int | None = None) -> list[bytes]:
    """Batches that follow each other; with a gap, as compaction leaves it, before one of them."""
    built, offset = [], BASE_OFFSET
    for number, count in enumerate(SIZES):
        if number == gap_before:
            offset += GAP
        records = [
            Record(offset + index, 1_000 + index, b"key", b"value %d" % (offset + index)) for index in range(count)
        ]
        built.append(bytes(build_batch(records, base_offset=offset, partition_leader_epoch=3)))
        offset += count
    return built


def end_of(built: list[bytes]) -> int:
    return read_header(built[-1]).last_offset + 1


def scanned(
    disk: LocalDisk, path: Path, content: bytes, *, next_base_offset: int | None, end_offset: int | None
) -> list[Whole | Mended | Damaged]:
    file_path = path / "00000000000000000100.log"
    file_path.write_bytes(content)
    file = disk.open(str(file_path))
    found = list(scan_segment(file, BASE_OFFSET, next_base_offset, end_offset=end_offset))
    file.close()
    return found


def headers(found: list[Whole | Mended | Damaged]) -> list[BatchHeader]:
    return [one.batch.header for one in found if not isinstance(one, Damaged)]


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "active"])
def test_an_undamaged_file_is_whole(disk: LocalDisk, tmp_path: Path, is_sealed: bool) -> None:
    for gap_before in (None, 0, 2, 4):
        built = batches(gap_before=gap_before)
        end = end_of(built)
        next_base = end if is_sealed else None
        found = scanned(
            disk, tmp_path, b"".join(built), next_base_offset=next_base, end_offset=None if is_sealed else end
        )
        assert [type(one) for one in found] == [Whole] * len(SIZES)


@pytest.mark.parametrize("end_is_known", [True, False])
@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "active"])
def test_any_bit_before_the_checksum_is_put_right(
    disk: LocalDisk, tmp_path: Path, is_sealed: bool, end_is_known: bool
) -> None:
    """All but the leader epoch, which is judged over segments: offset, length and format."""
    built = batches()
    end = end_of(built)
    expected = [read_header(one) for one in built]
    content = b"".join(built)
    position = 0
    for number, one in enumerate(built):
        for byte in (*range(12), 16):
            for bit in range(8):
                damaged = bytearray(content)
                damaged[position + byte] ^= 1 << bit
                found = scanned(
                    disk,
                    tmp_path,
                    bytes(damaged),
                    next_base_offset=end if is_sealed else None,
                    end_offset=end if end_is_known and not is_sealed else None,
                )
                assert headers(found) == expected, (number, byte, bit)
                assert [type(item) for item in found].count(Mended) == 1
        position += len(one)


def test_any_bit_behind_it_costs_that_batch_alone(disk: LocalDisk, tmp_path: Path) -> None:
    built = batches()
    end = end_of(built)
    content = b"".join(built)
    position = 0
    for number, one in enumerate(built):
        header = read_header(one)
        for byte in range(17, len(one), 5):
            damaged = bytearray(content)
            damaged[position + byte] ^= 1 << byte % 8
            found = scanned(disk, tmp_path, bytes(damaged), next_base_offset=end, end_offset=None)
            (lost,) = [item for item in found if isinstance(item, Damaged)]
            assert (lost.position, lost.end_position) == (position, position + len(one)), (number, byte)
            assert (lost.first_offset, lost.end_offset) == (header.base_offset, header.last_offset + 1)
            assert headers(found) == [read_header(other) for other in built if other is not one]
        position += len(one)


def test_two_false_offsets_in_a_row_are_put_right(disk: LocalDisk, tmp_path: Path) -> None:
    built = batches()
    damaged = bytearray(b"".join(built))
    damaged[len(built[0]) + 7] ^= 64
    damaged[len(built[0]) + len(built[1]) + 3] ^= 64
    found = scanned(disk, tmp_path, bytes(damaged), next_base_offset=end_of(built), end_offset=None)
    assert headers(found) == [read_header(one) for one in built]


def test_a_readable_batch_between_two_damaged_ones_is_not_lost(disk: LocalDisk, tmp_path: Path) -> None:
    """Nor is one with a false offset behind it."""
    built = batches()
    end = end_of(built)
    starts = [sum(map(len, built[:number])) for number in range(len(built))]
    for is_sealed in (True, False):
        damaged = bytearray(b"".join(built))
        damaged[starts[0] + 70] ^= 1
        damaged[starts[2] + 7] ^= 1
        damaged[starts[4] + 70] ^= 1
        found = scanned(
            disk,
            tmp_path,
            bytes(damaged),
            next_base_offset=end if is_sealed else None,
            end_offset=None if is_sealed else end,
        )
        assert [type(one) for one in found] == [Damaged, Whole, Mended, Whole, Damaged]
        assert headers(found) == [read_header(one) for one in built[1:4]]


def test_a_gap_of_compaction_is_no_damage_and_a_false_offset_beside_it_is_not_guessed(
    disk: LocalDisk, tmp_path: Path
) -> None:
    built = batches(gap_before=2)
    damaged = bytearray(b"".join(built))
    damaged[len(built[0]) + 1] ^= 64  # of the batch before the gap: how many offsets it leaves out is not known
    found = scanned(disk, tmp_path, bytes(damaged), next_base_offset=end_of(built), end_offset=None)
    (lost,) = [item for item in found if isinstance(item, Damaged)]
    assert (lost.position, lost.first_offset) == (len(built[0]), BASE_OFFSET + 1)
    assert lost.end_offset == read_header(built[2]).base_offset
    assert headers(found) == [read_header(one) for one in (built[0], *built[2:])]


def test_a_batch_within_a_record_is_not_taken_for_one_of_the_log(disk: LocalDisk, tmp_path: Path) -> None:
    """Somebody's topic may hold copies of log files."""
    built = batches()
    inner = bytes(build_batch([Record(BASE_OFFSET + 2, 1, None, b"inner")], base_offset=BASE_OFFSET + 2))
    outer = bytes(build_batch([Record(BASE_OFFSET + 1, 1, None, inner)] * 3, base_offset=BASE_OFFSET + 1))
    content = bytearray(b"".join([built[0], outer, *built[2:]]))
    content[len(built[0]) + 18] ^= 1
    found = scanned(disk, tmp_path, bytes(content), next_base_offset=end_of(built), end_offset=None)
    (lost,) = [item for item in found if isinstance(item, Damaged)]
    assert (lost.position, lost.end_position) == (len(built[0]), len(built[0]) + len(outer))


def test_bytes_after_the_last_batch_are_a_tail(disk: LocalDisk, tmp_path: Path) -> None:
    built = batches()
    whole = b"".join(built)
    for tail in (b"\0" * 500, b"x" * 30, built[0][:70]):
        found = scanned(disk, tmp_path, whole + tail, next_base_offset=None, end_offset=None)
        last = found[-1]
        assert isinstance(last, Damaged)
        assert (last.position, last.is_tail, last.end_offset) == (len(whole), True, None)
        assert last.first_offset == end_of(built)
