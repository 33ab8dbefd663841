"""Ctrl-C while a program imports ends it in silence; a program that ignores Ctrl-C goes on ignoring it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from fencepost.broker.process.interrupts import EXIT_INTERRUPTED, end_silently, raise_again


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_process_until_it_raises_again() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_silently()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    raise_again()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_in_the_background_ignores_ctrl_c_as_before() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_silently()
    raise_again()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_handler_of_the_program_stays() -> None:
    def handler(*_arguments: object) -> None:
        """Do nothing."""

    signal.signal(signal.SIGINT, handler)
    end_silently()
    raise_again()
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_exit_code_is_that_of_a_shell() -> None:
    assert EXIT_INTERRUPTED == 130
