"""What tests of costs have to tell although they pass."""

from __future__ import annotations

import pytest

_TOLD = pytest.StashKey[list[str]]()


@pytest.fixture
def told_at_the_end(request: pytest.FixtureRequest) -> list[str]:
    """Lines for the end of pytest's output."""
    return request.config.stash.setdefault(_TOLD, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_TOLD, []):
        terminalreporter.write_line(line)
