"""The authorizer: whether the rules allow a client an operation on a resource. It keeps its verdicts until a rule
changes.

Source: KIP-801, KIP-679 (rights on any resource of a type); Kafka's StandardAuthorizerData and
Authorizer.authorizeByResourceType.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from fencepost.broker.security.acls import (
    WILDCARD,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    AclRule,
)
from fencepost.broker.security.id_owners import IdOwners
from fencepost.broker.security.principal import EVERYONE

MAXIMUM_CLIENTS: Final = 10_000
"""Principals on hosts whose verdicts are kept; then all are dropped."""
MAXIMUM_VERDICTS: Final = 4_096
"""Verdicts kept for one of them; then all of these are dropped."""

IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL}
    ),
}
"""The operations whose permission includes another one. A denial includes none."""

RuleSet = dict[AclRule, None]


class _RulesOfType:
    """The rules for resources of one type: by literal name, and by prefix, of each length of a prefix."""

    def __init__(self) -> None:
        self.literals: dict[str, RuleSet] = {}
        self.prefixes: dict[int, dict[str, RuleSet]] = {}

    def sets_for(self, name: str) -> Iterator[RuleSet]:
        """The rules of every pattern that matches a name."""
        found = self.literals.get(name)
        if found is not None:
            yield found
        if name != WILDCARD:
            found = self.literals.get(WILDCARD)
            if found is not None:
                yield found
        for length, prefixes in self.prefixes.items():
            if length <= len(name):
                found = prefixes.get(name[:length])
                if found is not None:
                    yield found

    def all(self) -> Iterator[AclRule]:
        for rules in self.literals.values():
            yield from rules
        for prefixes in self.prefixes.values():
            for rules in prefixes.values():
                yield from rules

    def add(self, rule: AclRule) -> None:
        if rule.pattern is AclPattern.LITERAL:
            self.literals.setdefault(rule.name, {})[rule] = None
        else:
            self.prefixes.setdefault(len(rule.name), {}).setdefault(rule.name, {})[rule] = None

    def remove(self, rule: AclRule) -> None:
        names = self.literals if rule.pattern is AclPattern.LITERAL else self.prefixes[len(rule.name)]
        rules = names[rule.name]
        del rules[rule]
        if not rules:
            del names[rule.name]
            if not names and rule.pattern is AclPattern.PREFIXED:
                del self.prefixes[len(rule.name)]


class Rights:
    """The rights of one principal on one host, as of one epoch of the authorizer."""

    __slots__ = ("_authorizer", "_verdicts", "host", "is_super", "principal")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._verdicts: dict[tuple[int, int, str], bool] = {}
        self.principal = principal
        self.host = host
        self.is_super = principal in authorizer.super_users

    def may(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        """Whether the client may do the operation on the resource."""
        key = operation, resource, name
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= MAXIMUM_VERDICTS:
                self._verdicts.clear()
            verdict = self.is_super or self._authorizer.allows(self.principal, self.host, operation, resource, name)
            self._verdicts[key] = verdict
        return verdict

    def may_on_any(self, operation: AclOperation, resource: AclResource) -> bool:
        """Whether the client may do the operation on some resource of the type, which need not exist."""
        return self.is_super or self._authorizer.allows_on_any(self.principal, self.host, operation, resource)


class Authorizer:
    """The rules, and the verdicts that follow from them.

    super_users: principals that may do everything, against every rule.
    id_owners: the only others that may do anything with some transactional ids; the rules must allow it, too.
    allows_without_rules: the verdict if no rule's pattern matches the resource, for any principal.
    epoch: raised by every change of the rules; rights of an earlier epoch must not be used.
    """

    def __init__(
        self,
        rules: Iterable[AclRule] = (),
        *,
        super_users: Iterable[str] = (),
        allows_without_rules: bool = False,
        id_owners: IdOwners | None = None,
    ) -> None:
        self.epoch = 0
        self.super_users = frozenset(super_users)
        self.allows_without_rules = allows_without_rules
        self._id_owners = id_owners or IdOwners()
        self._of_type: dict[AclResource, _RulesOfType] = {}
        self._rights: dict[tuple[str, str], Rights] = {}
        self.change(rules, ())

    def change(self, added: Iterable[AclRule], removed: Iterable[AclRule]) -> None:
        """Add missing rules, and remove others; in force from the next question on."""
        for rule in removed:
            self._of_type[rule.resource].remove(rule)
        for rule in added:
            self._of_type.setdefault(rule.resource, _RulesOfType()).add(rule)
        self.epoch += 1
        self._rights = {}

    def rights(self, principal: str, host: str) -> Rights:
        """The rights of a principal on a host, by its address in text."""
        found = self._rights.get((principal, host))
        if found is None:
            if len(self._rights) >= MAXIMUM_CLIENTS:
                self._rights = {}
            found = self._rights[principal, host] = Rights(self, principal, host)
        return found

    def allows(self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str) -> bool:
        """The verdict of the rules, without the super users. Denials come before permissions."""
        if resource is AclResource.TRANSACTIONAL_ID and self._id_owners.refuses(principal, name):
            return False
        rules = self._of_type.get(resource)
        has_rules = is_allowed = False
        if rules is not None:
            implied_by = IMPLIED_BY.get(operation, (operation, AclOperation.ALL))
            for found in rules.sets_for(name):
                has_rules = True
                for rule in found:
                    if not _concerns(rule, principal, host):
                        continue
                    if rule.permission is AclPermission.DENY:
                        if rule.operation in (operation, AclOperation.ALL):
                            return False
                    elif rule.operation in implied_by:
                        is_allowed = True
        return is_allowed if has_rules else self.allows_without_rules

    def allows_on_any(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> bool:
        """Whether some permission of the operation is not covered as a whole by a denial."""
        if self.allows(principal, host, operation, resource, "hardcode"):  # a name that Kafka uses, too
            return True
        rules = self._of_type.get(resource)
        denied: set[tuple[AclPattern, str]] = set()
        allowed: list[tuple[AclPattern, str]] = []
        for rule in () if rules is None else rules.all():
            if not _concerns(rule, principal, host) or rule.operation not in (operation, AclOperation.ALL):
                continue
            if rule.permission is AclPermission.ALLOW:
                allowed.append((rule.pattern, rule.name))
            elif rule.pattern is AclPattern.LITERAL and rule.name == WILDCARD:
                return False
            else:
                denied.add((rule.pattern, rule.name))
        return any(
            pattern_and_name == (AclPattern.LITERAL, WILDCARD) or not _is_covered(*pattern_and_name, denied)
            for pattern_and_name in allowed
        )


def _concerns(rule: AclRule, principal: str, host: str) -> bool:
    return rule.principal in (principal, EVERYONE) and rule.host in (host, WILDCARD)


def _is_covered(pattern: AclPattern, name: str, denied: set[tuple[AclPattern, str]]) -> bool:
    if pattern is AclPattern.LITERAL and (pattern, name) in denied:
        return True
    return any((AclPattern.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
