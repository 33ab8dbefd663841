"""Durations and counts as people read them."""

from __future__ import annotations

from typing import Final

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
