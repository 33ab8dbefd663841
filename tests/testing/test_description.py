"""The broker's view in a failed test's message."""

from __future__ import annotations

from fencepost.testing.description import describe, first_lines


def test_lines_beyond_the_most_are_counted() -> None:
    assert first_lines(["a", "b"], 2) == ["a", "b"]
    assert first_lines(["a", "b", "c", "d"], 2) == ["a", "… and 3 more"]


class Stopped:
    faults = ()
    keeps_requests = True

    @property
    def bootstrap_servers(self) -> str:
        raise RuntimeError("it has not been started")

    def requests(self) -> list[object]:
        return []


def test_a_broker_that_does_not_answer_is_described_all_the_same() -> None:
    assert describe(Stopped(), 5).splitlines() == [  # type: ignore[arg-type]
        "The broker's view",
        "  the broker does not answer: it has not been started",
        "  no requests of clients",
    ]
