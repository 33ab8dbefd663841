"""The settings of one resolver, as plain values: which transactions it is asked about, when, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Exhausted(Enum):
    """Fate of a transaction whose source has answered `unknown` at every check."""

    PARK = "park"  # it stays open, no source is asked any more, and an administrator decides
    ABORT = "abort"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class ResolverSettings:
    """One resolver.

    name: letters, digits, `-`, `_`. ids: globs of transactional ids; the first resolver with a glob that matches is
    asked. type: `http`, `sql` or `record`; options: settings of that type, such as `url`.

    first_ms: time from the start of a transaction to the first question. interval_ms, backoff, interval_max_ms: pause
    after an answer `unknown` is interval_ms · backoff^(checks - 1), at most interval_max_ms. checks_max: answers
    `unknown` before the transaction is exhausted. timeout_ms: limit of one question. concurrency: questions at a time.
    """

    name: str
    ids: tuple[str, ...]
    type: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    first_ms: int = 30_000
    interval_ms: int = 30_000
    backoff: float = 2
    interval_max_ms: int = 600_000
    checks_max: int = 15
    timeout_ms: int = 3_000
    concurrency: int = 8
    exhausted: Exhausted = Exhausted.PARK
