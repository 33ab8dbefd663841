"""The audit log: refusals for want of a right, and changes that administrators make.

Each is one event of this module's logger, `broker.security.audit`, at level info; permissions are logged at level
debug. Refusals are bounded: one client can cause any number of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fencepost.broker.kernel.addresses import network_of
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import PACKAGE, get_logger
from fencepost.broker.kernel.log_limit import LogLimit
from fencepost.broker.kernel.loggers import Loggers, LogLevel
from fencepost.broker.kernel.printable import cut
from fencepost.broker.security.acls import WILDCARD, AclOperation, AclResource, AclRule
from fencepost.broker.security.authorizer import Authorizer, Rights
from fencepost.broker.security.principal import ANONYMOUS

log = get_logger(__name__)
_NAME: Final = __name__.removeprefix(PACKAGE)

MAXIMUM_NAME_CHARACTERS: Final = 300
"""Longer names of resources are cut: no topic, group or transactional id of a sane client has one."""

Refused = tuple[AclOperation, AclResource, str]


def note_change(
    principal: str,
    host: str,
    api: str,
    operation: str,
    resource_type: str,
    resource_name: str,
    details: Mapping[str, Any],
) -> None:
    """Log an administrator's change. api: the name of the request, or of another way in; the rest: the fields of
    `AdministrativeChange`.
    """
    log.info(
        "changed",
        principal=principal,
        host=host,
        api=api,
        operation=operation,
        resource_type=resource_type,
        resource_name=resource_name,
        **details,
    )


class NotingRights(Rights):
    """Rights of a client that log every permission, for level debug."""

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
    """Writes the audit log. Of refusals that repeat, the first is logged in each interval. Each principal has a share
    of the refusals that are logged, so that none hides those of others; ANONYMOUS has one for each address. The next
    interval logs how many of whom were left out.

    refused_count: all refusals since the start.
    """

    def __init__(self, clock: Clock, loggers: Loggers | None = None) -> None:
        self._loggers = loggers
        self.refused_count = 0
        self._limit = LogLimit(
            lambda: clock.now_ms() / 1000,
            lambda count, principal: log.info("refusals_left_out", count=count, principal=principal or "others"),
        )

    def notes_permissions(self) -> bool:
        """Whether permissions are logged now, too."""
        return self._loggers is not None and self._loggers.level(_NAME) <= LogLevel.DEBUG

    @staticmethod
    def allowed_all(rights: Rights, api: str) -> None:
        """Note a request of a super user, for level debug."""
        log.debug("allowed", principal=rights.principal, host=rights.host, api=api, is_super_user=True)

    def refused(self, rights: Rights, api: str, refused: Refused) -> None:
        """Note that a client was refused an operation."""
        self.refused_count += 1
        operation, resource, name = refused
        name = cut(name, MAXIMUM_NAME_CHARACTERS)
        principal = cut(rights.principal, MAXIMUM_NAME_CHARACTERS)
        whose = f"{principal} at {network_of(rights.host)}" if rights.principal == ANONYMOUS else principal
        if self._limit.allows(whose, event=(rights.principal, rights.host, operation, resource, name)):
            log.info(
                "refused",
                principal=principal,
                host=rights.host,
                operation=operation.name,
                resource_type=resource.name,
                resource_name=name,
                api=api,
            )

    @staticmethod
    def changed_acls(rights: Rights, added: Iterable[AclRule], removed: Iterable[AclRule]) -> None:
        """Note each rule that a client has added or removed."""
        for event, rules in (("acl_added", added), ("acl_removed", removed)):
            for rule in rules:
                log.info(event, principal=rights.principal, host=rights.host, rule=rule.described)
