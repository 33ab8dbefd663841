"""The audit log: refusals for want of a right, and changes that administrators make.

Each is one event of this module's logger, `broker.security.audit`, at level info; what rights allow is one at level
debug. Refusals are bounded: one client can cause any number of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import PACKAGE, get_logger
from fencepost.broker.kernel.loggers import Loggers, LogLevel
from fencepost.broker.security.acls import WILDCARD, AclOperation, AclResource, AclRule
from fencepost.broker.security.authorizer import Authorizer, Rights

log = get_logger(__name__)
_NAME: Final = __name__.removeprefix(PACKAGE)

INTERVAL_MS: Final = 10_000
MAXIMUM_REFUSALS: Final = 100
"""Different refusals that are logged in one interval; of the others the next interval logs the number."""

Refused = tuple[AclOperation, AclResource, str]


class AdministrativeChange(NamedTuple):
    """One thing that an administrator has changed.

    operation:     as in rules, such as CREATE.
    resource_type: as in rules where rules know it; else BROKER, BROKER_LOGGER, QUOTA, FEATURE or PRODUCER.
    details:       what it was changed to, without secrets.
    """

    operation: str
    resource_type: str
    resource_name: str
    details: Mapping[str, Any]


def note_change(principal: str, host: str, api: str, change: AdministrativeChange) -> None:
    """Note what somebody has changed. api: the name of the request, or of another way in."""
    log.info(
        "changed",
        principal=principal,
        host=host,
        api=api,
        operation=change.operation,
        resource_type=change.resource_type,
        resource_name=change.resource_name,
        **change.details,
    )


class NotingRights(Rights):
    """Rights of a client that note what they allow, for level debug."""

    __slots__ = ("_api",)

    def __init__(self, authorizer: Authorizer, principal: str, host: str, api: str) -> None:
        super().__init__(authorizer, principal, host)
        self._api = api

    def may(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        """As `Rights.may`; a permission is noted."""
        return self._note(super().may(operation, resource, name), operation, resource, name)

    def may_on_any(self, operation: AclOperation, resource: AclResource) -> bool:
        """As `Rights.may_on_any`; a permission is noted."""
        return self._note(super().may_on_any(operation, resource), operation, resource, WILDCARD)

    def _note(self, is_allowed: bool, operation: AclOperation, resource: AclResource, name: str) -> bool:
        if is_allowed:
            log.debug(
                "allowed",
                principal=self.principal,
                host=self.host,
                operation=operation.name,
                resource_type=resource.name,
                resource_name=name,
                api=self._api,
            )
        return is_allowed


class Audit:
    """Writes the audit log. Of refusals that repeat, the first is logged in each interval, with the number of those
    that the last interval left out.

    refused_count: all refusals since the start.
    """

    def __init__(self, clock: Clock, loggers: Loggers | None = None) -> None:
        self._clock = clock
        self._loggers = loggers
        self.refused_count = 0
        self._ends_ms = 0
        self._counts: dict[tuple[str, str, Refused], int] = {}
        self._left_out = 0

    def notes_permissions(self) -> bool:
        """Whether what is allowed is logged, too, now."""
        return self._loggers is not None and self._loggers.level(_NAME) <= LogLevel.DEBUG

    @staticmethod
    def allowed_all(rights: Rights, api: str) -> None:
        """Note a request of a super user, for level debug."""
        log.debug("allowed", principal=rights.principal, host=rights.host, api=api, is_super_user=True)

    def refused(self, rights: Rights, api: str, refused: Refused) -> None:
        """Note that a client was refused an operation."""
        self.refused_count += 1
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
