"""Rules that an operator gives by the names of transactional ids: which are two-phase, and which expire early. Pure.

Names are globs: `orders-*`, `till-?`, `shop-[ab]`. They serve clients that do not support KIP-939.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache


def is_matched(globs: tuple[str, ...], transactional_id: str) -> bool:
    """Whether a transactional id matches one of the globs. Case counts."""
    return bool(globs) and _compiled(globs).match(transactional_id) is not None


@lru_cache(64)
def _compiled(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(translate(glob) for glob in globs))


def parse_expirations(entries: Sequence[str]) -> list[tuple[str, int]]:
    """Read `GLOB=MILLISECONDS` entries; of several that match a name the first counts. Raises ValueError."""
    expirations = []
    for entry in entries:
        glob, separator, text = entry.rpartition("=")
        if not separator or not glob or not text.isascii() or not text.isdigit() or int(text) < 1:
            raise ValueError(f"expected GLOB=MILLISECONDS, such as sink-*=3600000; got {entry!r}")
        expirations.append((glob, int(text)))
    return expirations


def expiration_ms(expirations: Sequence[tuple[str, int]], transactional_id: str, default_ms: int) -> int:
    """Return how long an unused transactional id is kept, in ms."""
    for glob, kept_ms in expirations:
        if is_matched((glob,), transactional_id):
            return kept_ms
    return default_ms
