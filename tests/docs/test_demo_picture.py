"""The picture of the demonstration in the documentation: of a run that was right, as the code draws it today."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.pipeline.flights import FLIGHT_COUNT
from scripts.pipeline.verdict import Verdict

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "demo.svg"
LARGEST_BYTES = 250_000


def test_the_picture_shows_a_whole_run_without_a_fault() -> None:
    """`./scripts/demo --picture docs/demo.svg` renews it."""
    departed = FLIGHT_COUNT - 8_255
    verdict = Verdict(departed, lost=0, doubled=0, torn=0, dirty=0, checks=())
    title = re.search(r"<title>(.*?)</title>", PICTURE.read_text(encoding="utf-8"))
    assert title is not None
    assert title[1] == f"{verdict.headline}: {verdict.figures}"


def test_the_picture_is_small_enough_for_a_page() -> None:
    assert PICTURE.stat().st_size < LARGEST_BYTES
