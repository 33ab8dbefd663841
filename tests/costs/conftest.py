"""What tests of costs have to tell although they pass."""

from __future__ import annotations

import pytest

_REPORT = pytest.StashKey[list[str]]()


@pytest.fixture
def reported_at_the_end(request: pytest.FixtureRequest) -> list[str]:
    """Lines for the end of pytest's output."""
    return request.config.stash.setdefault(_REPORT, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_REPORT, []):
        terminalreporter.write_line(line)
