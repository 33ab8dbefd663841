"""The entry point in environments that were installed before it was `fencepost.cli.main`."""

from __future__ import annotations

from fencepost.broker import main as earlier
from fencepost.cli import main


def test_a_command_that_was_installed_earlier_still_runs() -> None:
    assert earlier.main is main.main
