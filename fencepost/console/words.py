"""Figures as people read them: durations, counts, sizes, times. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

NONE: Final = "\N{EN DASH}"
"""What stands for a figure that there is not."""
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS


def duration(milliseconds: int) -> str:
    """`40 ms`, `4.2 s`, `46 s`, `14 min`, `3 h 20 min`, `6 d 4 h`; `0 s` for a negative one."""
    if milliseconds <= 0:
        return "0 s"
    if milliseconds < _SECOND_MS:
        return f"{milliseconds} ms"
    if milliseconds < 10 * _SECOND_MS:
        return f"{milliseconds / _SECOND_MS:.1f} s".replace(".0 ", " ")
    if milliseconds < 2 * _MINUTE_MS:
        return f"{milliseconds // _SECOND_MS} s"
    if milliseconds < _HOUR_MS:
        return f"{milliseconds // _MINUTE_MS} min"
    if milliseconds < _DAY_MS:
        minutes = milliseconds % _HOUR_MS // _MINUTE_MS
        return f"{milliseconds // _HOUR_MS} h" + (f" {minutes} min" if minutes else "")
    hours = milliseconds % _DAY_MS // _HOUR_MS
    return f"{milliseconds // _DAY_MS} d" + (f" {hours} h" if hours else "")


def counted(number: int, noun: str) -> str:
    """`1 offset`, `11 offsets`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


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
