"""Failed log-ins are limited, and nobody else is locked out by them."""

from __future__ import annotations

from fencepost.console.web.attempts import LONGEST_USER, MOST_KEPT, MOST_OF_ADDRESS, MOST_OF_ONE, WINDOW_S, Attempts


class Clock:
    """A clock that a test moves. now_s: seconds."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_after_ten_failures_a_user_waits_at_that_address_and_others_do_not() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(MOST_OF_ONE):
        assert attempts.wait_s("10.0.0.1", "ann") == 0
        attempts.failed("10.0.0.1", "ann")
        clock.now_s += 1
    assert attempts.wait_s("10.0.0.1", "ann") == WINDOW_S - MOST_OF_ONE
    assert attempts.wait_s("10.0.0.2", "ann") == 0
    assert attempts.wait_s("10.0.0.1", "bob") == 0
    clock.now_s += WINDOW_S - MOST_OF_ONE
    assert attempts.wait_s("10.0.0.1", "ann") == 0


def test_an_address_that_tries_many_users_waits_too() -> None:
    attempts = Attempts(Clock())
    for number in range(MOST_OF_ADDRESS):
        attempts.failed("10.0.0.1", f"user-{number}")
    assert attempts.wait_s("10.0.0.1", "another") == WINDOW_S


def test_names_of_any_length_take_a_bounded_room_and_are_counted() -> None:
    attempts = Attempts(Clock())
    for number in range(MOST_OF_ONE):
        attempts.failed("10.0.0.1", "u" * LONGEST_USER + str(number) * 1_000_000)
    assert len(attempts) == 2
    assert attempts.wait_s("10.0.0.1", "u" * 1_000_000) == WINDOW_S
    attempts.succeeded("10.0.0.1", "u" * 1_000_000)
    assert attempts.wait_s("10.0.0.1", "u" * 1_000_000) == 0


def test_a_success_forgets_the_users_failures() -> None:
    attempts = Attempts(Clock())
    for _ in range(MOST_OF_ONE):
        attempts.failed("10.0.0.1", "ann")
    attempts.succeeded("10.0.0.1", "ann")
    assert attempts.wait_s("10.0.0.1", "ann") == 0


def test_what_is_kept_is_bounded() -> None:
    attempts = Attempts(Clock())
    for number in range(MOST_KEPT):
        attempts.failed(f"10.0.{number >> 8}.{number & 255}", "ann")
    assert len(attempts) == MOST_KEPT
