"""The page of settings is made from their table."""

from __future__ import annotations

from pathlib import Path

from fencepost.broker.config.documentation import PATH, configuration_page

ROOT = Path(__file__).resolve().parents[3]


def test_the_configuration_page_is_current() -> None:
    assert (ROOT / PATH).read_text() == configuration_page(), "run: python -m fencepost.broker.config.documentation"
