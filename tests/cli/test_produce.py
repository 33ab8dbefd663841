"""Signals that stop `fencepost produce`: its input ends, and what was begun is finished."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from fencepost.cli.produce import _header, _Stopping

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def lines() -> Iterator[tuple[int, bytes]]:
    yield from enumerate([b"a", b"b", b"c"], 1)


def test_without_a_signal_all_lines_are_read() -> None:
    with _Stopping() as stopping:
        assert [line for _, line in stopping.guarded(lines())] == [b"a", b"b", b"c"]
    assert stopping.signal_number is None


@SIGNALS
def test_a_signal_while_a_record_is_written_ends_the_input_after_it(number: int) -> None:
    written = []

    def write(stopping: _Stopping) -> None:
        for _, line in stopping.guarded(lines()):
            if line == b"b":
                os.kill(os.getpid(), number)
            written.append(line)

    with _Stopping() as stopping, pytest.raises(KeyboardInterrupt):
        write(stopping)
    assert written == [b"a", b"b"]
    assert stopping.signal_number == number


@SIGNALS
def test_a_signal_while_it_waits_for_a_line_ends_the_wait(number: int) -> None:
    def endless() -> Iterator[tuple[int, bytes]]:
        os.kill(os.getpid(), number)
        yield 1, b"never"

    with _Stopping() as stopping, pytest.raises(KeyboardInterrupt):
        list(stopping.guarded(endless()))
    assert stopping.signal_number == number


def test_a_second_signal_interrupts_what_the_first_one_left_to_finish() -> None:
    with _Stopping() as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.signal_number == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_the_handlers_before_it_are_there_again() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with _Stopping():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_header_has_the_bytes_of_the_command_line_also_if_they_are_no_text() -> None:
    assert _header(os.fsdecode(b"name=a=\xff")) == ("name", b"a=\xff")
