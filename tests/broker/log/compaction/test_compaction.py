"""The newest offsets of very many keys, which no step gathers, or gives back, for long."""

from __future__ import annotations

from fencepost.broker.kernel.sliced_work import run_to_end
from fencepost.broker.log.compaction.compaction import PARTS_COUNT, OffsetMap
from fencepost.protocol.record_batch import Record

COUNT = 20_000


def records(first: int, count: int) -> list[Record]:
    return [Record(first + number, 0, b"key-%d" % number, b"") for number in range(count)]


def test_no_part_grows_with_all_keys() -> None:
    """A dict of 700,000 keys takes 42 ms to grow: so long is a step that adds one key."""
    offsets = OffsetMap(10**9)
    assert run_to_end(offsets.add_batch(records(0, COUNT), 0))
    assert len(offsets) == COUNT
    sizes = [len(part) for part in offsets._offsets.parts]
    assert min(sizes) > COUNT / PARTS_COUNT / 2
    assert max(sizes) < COUNT / PARTS_COUNT * 2


def test_the_newest_offset_of_a_key_counts_whatever_part_it_is_in() -> None:
    offsets = OffsetMap(10**9)
    assert run_to_end(offsets.add_batch(records(0, COUNT), 5))
    assert run_to_end(offsets.add_batch(records(COUNT, 10), 0))
    assert len(offsets) == COUNT
    for number in (0, 9, 10, COUNT - 1):
        newest = number + COUNT if number < 10 else number
        assert offsets.has_newer(b"key-%d" % number, newest - 1)
        assert not offsets.has_newer(b"key-%d" % number, newest)
    assert not offsets.has_newer(b"another", -1)
    run_to_end(offsets.clearing_steps())
    assert len(offsets) == 0


def test_a_batch_without_room_is_left_out_as_a_whole() -> None:
    offsets = OffsetMap(1_000)
    assert run_to_end(offsets.add_batch(records(0, 100), 0))  # the first one always fits
    assert not run_to_end(offsets.add_batch([Record(200, 0, b"key-1", b""), Record(201, 0, b"new", b"")], 0))
    assert (len(offsets), offsets.has_newer(b"key-1", 100), offsets.has_newer(b"new", 0)) == (100, False, False)


def test_a_step_of_few_records_is_one_of_few_additions() -> None:
    offsets = OffsetMap(10**9)
    assert sum(1 for _ in offsets.add_batch(records(0, COUNT), 0)) >= 50
