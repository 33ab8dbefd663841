"""Whether a header can be that of the next batch, by what surrounds it."""

from __future__ import annotations

import pytest

from fencepost.broker.log.files.checkpoints import EpochStart
from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.segment.header_plausibility import HeaderPlausibility
from fencepost.protocol.record_batch import BatchHeader, Record, build_batch, read_header

END = 1_000


def header(base_offset: int, *, records: int = 10, epoch: int = 0) -> BatchHeader:
    batch = build_batch(
        [Record(index, 0, None, b"v") for index in range(records)],
        base_offset=base_offset,
        partition_leader_epoch=epoch,
    )
    return read_header(batch)


def order(
    next_offset: int = 100, *, epoch: int = 0, may_skip: bool = True, is_open: bool = False
) -> HeaderPlausibility:
    return HeaderPlausibility(next_offset, END, may_skip=may_skip, is_open=is_open, leader_epoch=epoch)


def accepts(expected: HeaderPlausibility, found: BatchHeader, behind: BatchHeader | None = None) -> bool:
    is_accepted = expected.accept(found, 7, lambda: behind)
    assert is_accepted is (expected.fault is None)
    assert is_accepted or (expected.fault is not None and expected.fault.position == 7)
    return is_accepted


@pytest.mark.parametrize("may_skip", [True, False])
def test_a_header_that_follows_the_last_batch_is_accepted(may_skip: bool) -> None:
    expected = order(may_skip=may_skip)
    assert accepts(expected, header(100))
    assert (expected.next_offset, expected.leader_epoch) == (110, 0)
    assert accepts(expected, header(110, records=1))


@pytest.mark.parametrize("may_skip", [True, False])
def test_a_header_that_goes_back_or_beyond_the_segment_is_refused(may_skip: bool) -> None:
    assert not accepts(order(may_skip=may_skip), header(99))
    assert not accepts(order(may_skip=may_skip), header(0))
    assert not accepts(order(END - 5, may_skip=may_skip), header(END - 5))
    assert not accepts(order(may_skip=may_skip), header(2**62))


def test_a_gap_is_accepted_where_compaction_may_have_left_it() -> None:
    assert accepts(order(), header(164), header(174))
    assert accepts(order(), header(164), header(500))
    assert accepts(order(), header(164), None)
    assert not accepts(order(may_skip=False), header(164), header(174))


def test_a_gap_that_the_batch_behind_contradicts_is_false() -> None:
    for behind in (110, 111, 173):
        expected = order()
        assert not accepts(expected, header(164), header(behind))
        assert expected.fault is not None
        assert (expected.fault.expected_offset, expected.fault.found_offset) == (100, 164)


def test_a_gap_at_the_end_of_a_log_is_false_unless_a_batch_behind_confirms_it() -> None:
    assert not accepts(order(is_open=True), header(164), None)
    assert accepts(order(is_open=True), header(164), header(174))


def test_epochs_never_fall() -> None:
    assert not accepts(order(epoch=3), header(100, epoch=2), header(110, epoch=3))
    assert not accepts(order(epoch=3), header(100, epoch=-1), None)


def test_an_epoch_that_rises_must_be_the_next_one_or_confirmed() -> None:
    assert accepts(order(epoch=3), header(100, epoch=4), None)
    assert not accepts(order(epoch=3), header(100, epoch=5), None)
    assert accepts(order(epoch=3), header(100, epoch=500), header(110, epoch=500))
    assert not accepts(order(epoch=3), header(100, epoch=2**30), header(110, epoch=3))


def test_checkpoint_and_metadata_bound_an_epoch() -> None:
    known = LeaderEpochs([EpochStart(4, 0), EpochStart(9, 150)])
    within = HeaderPlausibility(100, END, may_skip=True, leader_epoch=4, known_epochs=known)
    assert accepts(within, header(100, epoch=10), None)
    beyond = HeaderPlausibility(100, END, may_skip=True, leader_epoch=4, known_epochs=known)
    assert not accepts(beyond, header(100, epoch=11), None)
    led = HeaderPlausibility(100, END, may_skip=True, leader_epoch=4, known_epochs=known, greatest_epoch=40)
    assert accepts(led, header(100, epoch=40), None)


def test_a_batch_below_the_epoch_of_the_checkpoint_is_false_where_the_log_agrees_with_that() -> None:
    known = LeaderEpochs([EpochStart(4, 0)])
    assert not accepts(
        HeaderPlausibility(0, END, may_skip=True, known_epochs=known), header(0, epoch=0), header(10, epoch=4)
    )
    # A file that was put back may be older than the checkpoint.
    assert accepts(HeaderPlausibility(0, END, may_skip=True, known_epochs=known), header(0, epoch=0), None)
    # Where the log as a whole says otherwise it is the checkpoint that is wrong.
    assert accepts(
        HeaderPlausibility(0, END, may_skip=True, known_epochs=known), header(0, epoch=3), header(10, epoch=3)
    )


def test_the_first_batch_of_a_log_of_which_nothing_is_known_may_have_any_epoch_but_an_absurd_one() -> None:
    assert accepts(HeaderPlausibility(0, END, may_skip=True), header(0, epoch=57), None)
    assert not accepts(HeaderPlausibility(0, END, may_skip=True), header(0, epoch=2**30), None)
