"""The ACLs of the cluster: stored in the metadata store, and in force in the authorizer.

Source: KIP-801; Kafka's AclControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from fencepost.broker.kernel.addresses import canonical_host
from fencepost.broker.metadata.document import VersionedDocument
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.security.acls import (
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    AclRule,
)
from fencepost.broker.security.authorizer import Authorizer
from fencepost.protocol.checked_json import text_of

ACLS_KEY: Final = "acls"
MAXIMUM_RULES: Final = 10_000
"""Bound on rules: they are written as one document, within a time slice of the event loop."""

Rules = dict[AclRule, None]
"""In the order in which they were added."""


class TooManyRulesError(Exception):
    """A change would leave more than MAXIMUM_RULES rules."""


class Acls:
    """The rules, and the authorizer that has them in force.

    authorizer: asked about every request; a change is in force in the step in which it is known to be durable.
    """

    def __init__(self, store: MetadataStore, authorizer: Authorizer) -> None:
        self.authorizer = authorizer
        # An operator may have to revoke rights to keep clients from filling the disk.
        self._document: VersionedDocument[Rules] = VersionedDocument(
            store, ACLS_KEY, read=_read, write=_write, may_use_reserve=True
        )
        self._in_force: Rules = {}

    async def open(self) -> None:
        """Put the stored rules in force, also those that another node has written since. Raises StorageError."""
        await self._document.load()
        self._put_in_force()

    def matching(self, matches: Callable[[AclRule], bool]) -> list[AclRule]:
        """The rules that a function chooses."""
        return [rule for rule in self._in_force if matches(rule)]

    async def add(self, rules: Iterable[AclRule]) -> list[AclRule]:
        """Add rules; return those that are new. Raises StorageError and TooManyRulesError."""
        wanted = dict.fromkeys(rules)
        added: list[AclRule] = []

        def changed(before: Rules) -> Rules | None:
            added[:] = [rule for rule in wanted if rule not in before]
            if added and len(before) + len(added) > MAXIMUM_RULES:
                raise TooManyRulesError(f"There may be at most {MAXIMUM_RULES} ACLs; there are {len(before)} now.")
            return {**before, **dict.fromkeys(added)} if added else None

        await self._change(changed)
        return added

    async def remove(self, filters: Sequence[Callable[[AclRule], bool]]) -> list[list[AclRule]]:
        """Remove the rules that any filter matches; return the matches of each. Raises StorageError."""
        found: list[list[AclRule]] = []

        def changed(before: Rules) -> Rules | None:
            found[:] = [[rule for rule in before if matches(rule)] for matches in filters]
            removed = {rule for rules in found for rule in rules}
            return {rule: None for rule in before if rule not in removed} if removed else None

        await self._change(changed)
        return found

    async def _change(self, changed: Callable[[Rules], Rules | None]) -> None:
        await self._document.change(changed)
        self._put_in_force()

    def _put_in_force(self) -> None:
        before, after = self._in_force, self._document.content
        if after is before:
            return
        added = [rule for rule in after if rule not in before]
        removed = [rule for rule in before if rule not in after]
        if added or removed:
            self.authorizer.change(added, removed)
        self._in_force = after


def _read(content: Any) -> Rules:
    return {
        AclRule(
            AclResource[resource],
            AclPattern[pattern],
            text_of(name, "the name of a resource"),
            text_of(principal, "a principal"),
            canonical_host(text_of(host, "a host")),
            AclOperation[operation],
            AclPermission[permission],
        ): None
        for resource, pattern, name, principal, host, operation, permission in content or ()
    }


def _write(content: Rules) -> Any:
    return [
        [
            rule.resource.name,
            rule.pattern.name,
            rule.name,
            rule.principal,
            rule.host,
            rule.operation.name,
            rule.permission.name,
        ]
        for rule in content
    ]
