"""Counts of the authentications of one listener, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AuthenticationCounts:
    """Authentications since the start; `again`: of clients that had authenticated before, on the same connection.

    expired: connections that were closed at a request after the end of their session.
    """

    succeeded: int = 0
    failed: int = 0
    succeeded_again: int = 0
    failed_again: int = 0
    expired: int = 0
