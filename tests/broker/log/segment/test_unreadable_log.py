"""A log file that cannot be opened: it has no size, and each read or write is an error with its path."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.broker.log.segment.unreadable_log import UnreadableFile
from fencepost.broker.storage.disk import StorageError

FILE = UnreadableFile("/data/orders-0")


@pytest.mark.parametrize(
    "use",
    [
        lambda: FILE.append(b"batch"),
        lambda: FILE.read(0, 1),
        lambda: FILE.read_to_send(0, 1),
        lambda: FILE.send(1, 0, 1),
        lambda: FILE.truncate(0),
        lambda: FILE.last_write_ms(),
        lambda: FILE.set_last_write_ms(1),
    ],
)
def test_each_use_is_refused_with_the_path(use: Callable[[], object]) -> None:
    with pytest.raises(StorageError, match="/data/orders-0 could not be opened"):
        use()


def test_it_has_no_size_and_can_be_closed() -> None:
    assert FILE.size_bytes == 0
    FILE.release_room()
    FILE.close()
