"""Families about transactions without a time-out, which nothing but their client or an administrator ends.

By the glob of `fencepost.two.phase.transactional.ids`, or of a resolver, that their id matches, as each is a service of
somebody's; `(client)` has those whose client has asked for it itself (KIP-939).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fencepost.broker.metrics.family import Family, Kind, Sample, Samples, label_text
from fencepost.broker.metrics.scrape import STEP, Scrape
from fencepost.broker.transaction.metadata import TWO_PHASE_COMMIT_TIMEOUT_MS
from fencepost.broker.transaction.names import is_matched

GAUGE = Kind.GAUGE
BY_CLIENT: Final = "(client)"


@dataclass(slots=True)
class _Open:
    """Open transactions of one glob. oldest_ms: age; overdue: older than `fencepost.two.phase.warn.age.ms`."""

    count: int = 0
    oldest_ms: int = 0
    overdue: int = 0


def _of_each(value: Callable[[_Open], float]) -> Callable[[Scrape], Samples]:
    def collect(scrape: Scrape) -> Samples:
        settings = scrape.view.settings
        globs = (*settings.fencepost_two_phase_transactional_ids, *scrape.view.services.transactions.two_phase_ids)
        found = {glob: _Open() for glob in globs}
        for number, one in enumerate((yield from scrape.undecided()).values(), 1):
            if one.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS and one.state.is_open:
                glob = next((glob for glob in globs if is_matched((glob,), one.transactional_id)), BY_CLIENT)
                age_ms = max(0, scrape.now_ms - one.start_ms)
                entry = found.setdefault(glob, _Open())
                entry.count += 1
                entry.oldest_ms = max(entry.oldest_ms, age_ms)
                entry.overdue += age_ms > settings.fencepost_two_phase_warn_age_ms
            if number % STEP == 0:
                yield None
        for glob, entry in found.items():
            yield Sample(label_text(("ids",), (glob,)), value(entry))

    return collect


TWO_PHASE_FAMILIES: Final = (
    Family(
        "fencepost_two_phase_open",
        GAUGE,
        "Open transactions of this coordinator that do not time out, by the glob that their id matches; (client): by "
        "none, their client has asked for it.",
        ("ids",),
        _of_each(lambda entry: entry.count),
    ),
    Family(
        "fencepost_two_phase_oldest_open_seconds",
        GAUGE,
        "Age of the oldest of them; 0 without any.",
        ("ids",),
        _of_each(lambda entry: entry.oldest_ms / 1000),
    ),
    Family(
        "fencepost_two_phase_overdue",
        GAUGE,
        "Those older than `fencepost.two.phase.warn.age.ms`: their service should have ended them.",
        ("ids",),
        _of_each(lambda entry: entry.overdue),
    ),
)
