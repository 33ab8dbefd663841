"""Transactional ids that have owners: nobody else uses, ends or sees them, with any permission."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.security.acls import AclOperation, AclPattern, AclResource
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.id_owners import IdOwners
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from tests.support.secured_broker import ADMIN, ALICE, SecuredClient, rule, secured_broker

BOB = "User:bob"
ID = AclResource.TRANSACTIONAL_ID
OWNERS = "orders-*=User:alice; orders-*=User:operator; till-?=User:CN=till, O=shop"


@pytest.mark.parametrize(
    ("principal", "name", "is_refused"),
    [
        ("User:alice", "orders-1", False),
        ("User:operator", "orders-1", False),
        ("User:bob", "orders-1", True),
        ("User:bob", "invoices-1", False),
        ("User:CN=till, O=shop", "till-7", False),
        ("User:alice", "till-7", True),
        ("User:alice", "till-77", False),
    ],
)
def test_an_id_with_owners_is_refused_to_others(principal: str, name: str, is_refused: bool) -> None:
    assert IdOwners(OWNERS).refuses(principal, name) is is_refused


@pytest.mark.parametrize("text", ["orders-*", "=User:alice", "orders-*=alice", "orders-*=", "a=User:b;c"])
def test_an_entry_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected GLOB=PRINCIPAL entries, such as orders-\*=User:orders.*; got '"):
        IdOwners(text)


def test_no_permission_reaches_an_id_of_others_and_owners_need_one_all_the_same() -> None:
    prefix = [rule(AclOperation.ALL, ID, "orders-", pattern=AclPattern.PREFIXED, principal=who) for who in (ALICE, BOB)]
    authorizer = Authorizer(prefix, super_users=[ADMIN], id_owners=IdOwners("orders-*=User:alice"))
    for operation in (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT):
        assert authorizer.rights(ALICE, "h").may(operation, ID, "orders-1")
        assert authorizer.rights(ADMIN, "h").may(operation, ID, "orders-1")
        assert not authorizer.rights(BOB, "h").may(operation, ID, "orders-1")
    assert authorizer.rights(BOB, "h").may(AclOperation.READ, AclResource.TOPIC, "orders-1") is False
    assert not Authorizer(id_owners=IdOwners("o=User:alice")).rights(ALICE, "h").may(AclOperation.WRITE, ID, "o")


async def test_a_stranger_neither_sees_nor_ends_nor_takes_over_an_id_of_others(tmp_path: Path) -> None:
    async with secured_broker(tmp_path, fencepost_transactional_id_owners="orders-*=User:alice") as broker:
        bob = SecuredClient(broker.services, BOB)
        for who in (ALICE, BOB):
            await broker.allow(rule(AclOperation.ALL, ID, "*", principal=who))
        begun = await broker.alice.call(InitProducerIdRequest("orders-1", 60_000), 4)
        assert begun.error_code == ErrorCode.NONE
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await bob.call(InitProducerIdRequest("orders-1", 60_000), 4)).error_code == refused
        end = EndTxnRequest("orders-1", begun.producer_id, begun.producer_epoch, False)
        assert (await bob.call(end, 3)).error_code == refused
        (described,) = (await bob.call(DescribeTransactionsRequest(["orders-1"]))).transaction_states
        assert (described.error_code, described.producer_id) == (refused, 0)
        assert (await bob.call(ListTransactionsRequest())).transaction_states == []
        for seeing in (broker.alice, broker.admin):
            (listed,) = (await seeing.call(ListTransactionsRequest())).transaction_states
            assert listed.transactional_id == "orders-1"
