"""The audit log: refusals for want of a right, and changes that administrators make.

Each is one event of this module's logger, `broker.security.audit`, at level info. Refusals are bounded: one client can
cause any number of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.security.acls import AclOperation, AclResource, AclRule
from fencepost.broker.security.authorizer import Rights

log = get_logger(__name__)

INTERVAL_MS: Final = 10_000
MAXIMUM_REFUSALS: Final = 100
"""Different refusals that are logged in one interval; of the others the next interval logs the number."""

Refused = tuple[AclOperation, AclResource, str]


class Audit:
    """Writes the audit log. Of refusals that repeat, the first is logged in each interval, with the number of those
    that the last interval left out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_ms = 0
        self._counts: dict[tuple[str, str, Refused], int] = {}
        self._left_out = 0

    def refused(self, rights: Rights, api: str, refused: Refused) -> None:
        """Note that a client was refused an operation."""
        now_ms = self._clock.now_ms()
        if now_ms >= self._ends_ms:
            self._begin_interval(now_ms)
        key = rights.principal, rights.host, refused
        if key in self._counts:
            self._counts[key] += 1
        elif len(self._counts) >= MAXIMUM_REFUSALS:
            self._left_out += 1
        else:
            self._counts[key] = 0
            operation, resource, name = refused
            log.info(
                "refused",
                principal=rights.principal,
                host=rights.host,
                operation=operation.name,
                resource_type=resource.name,
                resource_name=name,
                api=api,
            )

    def _begin_interval(self, now_ms: int) -> None:
        left_out = self._left_out + sum(self._counts.values())
        if left_out:
            log.info("refusals_left_out", count=left_out)
        self._counts.clear()
        self._left_out = 0
        self._ends_ms = now_ms + INTERVAL_MS

    @staticmethod
    def changed_acls(rights: Rights, added: Iterable[AclRule], removed: Iterable[AclRule]) -> None:
        """Note each rule that a client has added or removed."""
        for event, rules in (("acl_added", added), ("acl_removed", removed)):
            for rule in rules:
                log.info(event, principal=rights.principal, host=rights.host, rule=rule.described)
