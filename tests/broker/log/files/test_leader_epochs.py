"""Leader epochs of a log, and where each ended."""

from __future__ import annotations

from fencepost.broker.log.files.leader_epochs import LeaderEpochs


def epochs(*starts: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, offset in starts:
        made.assign(epoch, offset)
    return made


def test_an_epoch_ends_where_the_next_begins_and_the_current_one_at_the_end_of_the_log() -> None:
    known = epochs((1, 0), (3, 10), (5, 20))
    assert known.end_offset_for(1, 5, 25) == (1, 10)
    assert known.end_offset_for(2, 5, 25) == (1, 10)
    assert known.end_offset_for(5, 5, 25) == (5, 25)
    assert known.end_offset_for(6, 5, 25) == (-1, -1)
    assert known.end_offset_for(-1, 5, 25) == (-1, -1)


def test_an_epoch_that_is_not_newer_changes_nothing() -> None:
    known = epochs((3, 10))
    known.changed = False
    known.assign(3, 12)
    known.assign(2, 12)
    assert (known.starts, known.changed, known.latest) == (((3, 10),), False, 3)


def test_an_epoch_in_which_nothing_was_written_is_replaced() -> None:
    assert epochs((1, 0), (2, 10), (3, 10)).starts == ((1, 0), (3, 10))


def test_epochs_beyond_the_end_are_removed_and_those_before_the_start_begin_there() -> None:
    known = epochs((1, 0), (2, 10), (3, 20))
    known.truncate_from_end(20)
    assert (known.starts, known.latest) == (((1, 0), (2, 10)), 2)
    known.truncate_from_start(15)
    assert known.starts == ((2, 15),)
    assert (known.epoch_at(14), known.epoch_at(15)) == (-1, 2)
