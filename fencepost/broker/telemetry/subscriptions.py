"""Which metrics a client is asked for: those of all subscriptions that match it. Pure.

Source: KIP-714; Kafka's ClientMetricsManager and ClientMetricsInstanceMetadata.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from fencepost.broker.kernel.java_pattern import LINE_ENDS

ALL_METRICS: Final = "*"
LONGEST_TEXT: Final = 1_000
"""Characters of a client's attribute; a longer one, or one with a line end, matches no pattern."""
_SIGNED: Final = 2**31
_HALVES: Final = struct.Struct(">4I")


class Subscription(NamedTuple):
    """One subscription. patterns: attributes, each with the pattern of RE2 for the whole text."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Sequence[tuple[str, Any]]


class Wanted(NamedTuple):
    """The metrics that a client is asked for, as sorted prefixes of names; `*` alone for all."""

    metrics: tuple[str, ...]
    interval_ms: int


def wanted_of(subscriptions: Iterable[Subscription], attributes: Mapping[str, str], default_interval_ms: int) -> Wanted:
    """The metrics that are wanted of a client with these attributes, at the least interval, the default included."""
    metrics: set[str] = set()
    interval_ms = default_interval_ms
    for one in subscriptions:
        if all(_matches(pattern, attributes.get(attribute)) for attribute, pattern in one.patterns):
            metrics.update(one.metrics)
            interval_ms = min(interval_ms, one.interval_ms)
    return Wanted((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)


def _matches(pattern: Any, text: str | None) -> bool:
    if text is None or len(text) > LONGEST_TEXT or LINE_ENDS.search(text) is not None:
        return False
    try:
        return pattern.fullmatch(text) is not None
    except UnicodeError:
        return False  # a lone surrogate, which RE2 has no text for


def subscription_id(wanted: Wanted, client_instance_id: bytes) -> int:
    """The checksum of a subscription that a push repeats: as Kafka's, of the sorted metrics, interval and id."""
    checksum: int = crc32c(f"[{', '.join(wanted.metrics)}]{wanted.interval_ms}".encode("utf-8", "replace"))
    for half in _HALVES.unpack(client_instance_id):
        checksum ^= half  # as Java's UUID.hashCode
    return checksum - 2 * _SIGNED if checksum >= _SIGNED else checksum
