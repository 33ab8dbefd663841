"""What a broker says right before it closes a connection reaches the coordinator's client, whole and in order."""

from __future__ import annotations

import pytest

from fencepost.two_phase.admin_client import data_before_the_end

Received = tuple[bytes, Exception | None]
RESET = ConnectionError("reset by peer")


@pytest.mark.parametrize(
    ("socket", "expected"),
    [
        ([(b"reply", None), (b"", RESET)], [(b"reply", None), (b"", RESET)]),
        ([(b"reply", RESET)], [(b"reply", None), (b"", RESET)]),
        ([(b"", RESET)], [(b"", RESET)]),
        ([(b"one", None), (b"two", RESET)], [(b"one", None), (b"two", None), (b"", RESET)]),
    ],
    ids=["apart", "together", "nothing but the end", "a second reply with the end"],
)
def test_data_that_come_with_the_end_are_delivered_before_it(socket: list[Received], expected: list[Received]) -> None:
    left = iter(socket)
    receive = data_before_the_end(lambda: next(left))
    assert [receive() for _ in expected] == expected
    assert next(left, None) is None
