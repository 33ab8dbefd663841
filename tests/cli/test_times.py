"""Times and durations on the command line."""

from __future__ import annotations

import time

import click
import pytest

from fencepost.cli.times import DurationType, TimeType


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("90s", 90_000), ("10m", 600_000), ("1.5h", 5_400_000), ("2 d", 172_800_000), ("3min", 180_000)],
)
def test_a_duration_has_a_unit(text: str, milliseconds: int) -> None:
    assert DurationType().convert(text, None, None) == milliseconds


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "5 weeks", "1e3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 500ms, 90s, 10m, 2h or 1d"):
        DurationType().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2026-01-31T14:02:00Z", 1_769_868_120_000),
        ("2026-01-31 15:02:00.250+01:00", 1_769_868_120_250),
    ],
)
def test_a_moment_is_written_in_iso_8601_or_in_milliseconds(text: str, milliseconds: int) -> None:
    assert TimeType().convert(text, None, None) == milliseconds


def test_a_moment_without_an_offset_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-3")
    time.tzset()
    try:
        assert TimeType().convert("2026-01-31T17:02:00", None, None) == 1_769_868_120_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_moment_can_be_some_time_ago() -> None:
    before_ms = time.time() * 1000
    found = TimeType().convert("-10m", None, None)
    assert before_ms - 600_001 <= found <= time.time() * 1000 - 600_000 + 1


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "-10"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no time: write 2026-01-31T14:02:00"):
        TimeType().convert(text, None, None)
