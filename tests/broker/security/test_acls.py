"""Rules in words."""

from __future__ import annotations

from fencepost.broker.security.acls import AclOperation, AclPattern, AclPermission, AclResource
from tests.support.secured_broker import ALICE, rule

READ, TOPIC = AclOperation.READ, AclResource.TOPIC


def test_a_rule_is_described_for_the_audit_log() -> None:
    denied = rule(READ, AclResource.TRANSACTIONAL_ID, "tx", pattern=AclPattern.PREFIXED, permission=AclPermission.DENY)
    assert denied.described == f"deny {ALICE} from * READ on transactional id tx*"
