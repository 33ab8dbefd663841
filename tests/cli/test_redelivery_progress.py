"""Progress of redeliveries is read as it was written, and content that no command has written is refused."""

from __future__ import annotations

import pytest

from fencepost.cli.redelivery_progress import Copy, Offsets, Progress, decoded
from fencepost.protocol.checked_json import JsonError

COPY = Copy(7, 0, 3, "orders", "ab" * 16, 2, ((4, 5), (6, 6)), 1_700_000_000_000)


def test_a_progress_is_read_as_it_was_written() -> None:
    progress = Progress("g", "cd" * 16, 1, Offsets([(0, 3), (9, 9)]), COPY)
    found = decoded(progress.key, progress.encoded())
    assert found is not None
    assert (found.group, found.topic_id, found.partition, found.copy) == ("g", "cd" * 16, 1, COPY)
    assert found.done.ranges == [(0, 3), (9, 9)]
    assert decoded(progress.key, None) is None


def test_a_complete_batch_is_done_with_the_offsets_before_it_that_are_no_dead_letters() -> None:
    progress = Progress("g", "cd" * 16, 1, Offsets([(0, 3)]), COPY)
    progress.complete()
    assert progress.copy is None
    assert progress.done.ranges == [(0, 6)]


@pytest.mark.parametrize(
    ("added", "ranges"),
    [
        ([(5, 5), (1, 1)], [(1, 1), (5, 5)]),
        ([(1, 1), (2, 2), (3, 4)], [(1, 4)]),
        ([(1, 9), (3, 4)], [(1, 9)]),
        ([(1, 2), (6, 7), (3, 5)], [(1, 7)]),
        ([(6, 7), (1, 2), (0, 9)], [(0, 9)]),
    ],
)
def test_ranges_are_joined(added: list[tuple[int, int]], ranges: list[tuple[int, int]]) -> None:
    offsets = Offsets(added)
    assert offsets.ranges == ranges
    for offset in range(11):
        assert (offset in offsets) is any(first <= offset <= last for first, last in ranges)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"x", b"{}"),
        (b'["g", "id"]', b"{}"),
        (b'["g", 1, 2]', b"{}"),
        (b'["g", "id", -1]', b'{"version": 1, "done": [], "copy": null}'),
        (b'["g", "id", 0]', b'{"version": 2, "done": [], "copy": null}'),
        (b'["g", "id", 0]', b'{"version": 1, "done": [[3, 1]], "copy": null}'),
        (b'["g", "id", 0]', b'{"version": 1, "done": [[3]], "copy": null}'),
        (b'["g", "id", 0]', b'{"version": 1, "done": [], "copy": {}}'),
        (b'["g", "id", 0]', b"\xff"),
    ],
)
def test_other_content_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(JsonError):
        decoded(key, value)
