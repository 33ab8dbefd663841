"""Figures as people read them: sizes, times. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

NONE: Final = "\N{EN DASH}"
"""Placeholder of a missing figure."""


def size(number_of_bytes: int) -> str:
    """`512 B`, `1.4 KiB`, `3.0 GiB`."""
    if number_of_bytes < 1024:
        return f"{number_of_bytes} B"
    value = float(number_of_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{value:.1f} {unit}"


def clock(time_ms: int) -> str:
    """A time in UTC, to the millisecond; a dash for none."""
    if time_ms < 0:
        return NONE
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def parse_clock(text: str) -> int:
    """Read a time: milliseconds since 1970, or ISO 8601, taken as UTC without an offset. Raises ValueError."""
    stripped = text.strip()
    if stripped.lstrip("-").isdigit():
        return int(stripped)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 2026-01-31 14:02:00 (UTC), or milliseconds since 1970") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
