"""The end of a command whose output nobody reads any more, as behind `| head -1`: quiet, with a code of its own."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import click

from fencepost.cli.exit_codes import OUTPUT_CLOSED


def is_output_closed() -> bool:
    """Whether the reader of standard output is gone; False if there is no such file."""
    try:
        descriptor = sys.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, 0)
        events = poll.poll(0)
    except (OSError, ValueError, AttributeError):
        return False
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in events)


def end_quietly() -> NoReturn:
    """End the process. Text that Python still holds for standard output goes nowhere."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(OUTPUT_CLOSED)


@contextmanager
def quiet_if_output_is_closed() -> Iterator[None]:
    """End the process quietly if nobody reads its output any more. Raises ClickException for a broken connection.

    click ends both with the code of a failure, without a word.
    """
    try:
        yield
    except BrokenPipeError as error:
        if is_output_closed():
            end_quietly()
        raise click.ClickException(f"a connection was closed: {error.strerror or error}") from error
