"""Times and durations as people type them on the command line."""

from __future__ import annotations

import re
from typing import Final

import click

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)", re.ASCII)


class DurationType(click.ParamType):
    """`90s`, `10m`, `2h`, `1d`; becomes milliseconds."""

    name = "DURATION"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no duration: write 500ms, 90s, 10m, 2h or 1d", param, ctx)
        return round(float(match[1]) * _UNITS_MS[match[2]])


class TimeType(click.ParamType):
    """A moment: ISO 8601 (local time without an offset), milliseconds since 1970, or `-10m`, that long ago.

    Becomes milliseconds since 1970.
    """

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        import datetime as dt
        import time

        if isinstance(value, int):
            return value
        text = str(value).strip()
        if text.isascii() and text.isdecimal():
            return int(text)
        ago = _DURATION.fullmatch(text.removeprefix("-")) if text.startswith("-") else None
        if ago is not None:
            return int(time.time() * 1000) - round(float(ago[1]) * _UNITS_MS[ago[2]])
        try:
            moment = dt.datetime.fromisoformat(text)
            return round(moment.timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is no time: write 2026-01-31T14:02:00 (local) or 2026-01-31T14:02:00Z, "
                "milliseconds since 1970, or -10m for ten minutes ago",
                param,
                ctx,
            )
