"""DescribeAcls, CreateAcls and DeleteAcls at every version; rules over a restart, by host, without an authorizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.kernel.events import events_to
from fencepost.broker.network.server import StartError
from fencepost.broker.node import Node
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tests.support.handler_context import open_broker
from tests.support.secured_broker import ALICE, STANDARD_AUTHORIZER, SecuredBroker, rule, secured_broker

READ, TOPIC = AclOperation.READ, AclResource.TOPIC


def creation(name: str = "orders", **changes: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": ALICE,
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**(fields | changes))


async def described(broker: SecuredBroker, version: int = 3, **fields: Any) -> list[Any]:
    wanted: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    reply = await broker.admin.call(DescribeAclsRequest(**(wanted | fields)), version)
    assert reply.error_code == 0
    return [
        (
            one.resource_type,
            one.resource_name,
            one.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for one in reply.resources
        for acl in one.acls
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_rules_are_created_described_and_deleted(tmp_path: Path, version: int) -> None:
    async with secured_broker(tmp_path) as broker:
        wanted = [creation(), creation(resource_pattern_type=4), creation("other", operation=4, permission_type=2)]
        created = await broker.admin.call(CreateAclsRequest(wanted), version)
        assert [result.error_code for result in created.results] == [0, 0, 0]
        assert await described(broker, version) == [
            (2, "orders", 3, ALICE, "*", 3, 3),
            (2, "orders", 4, ALICE, "*", 3, 3),
            (2, "other", 3, ALICE, "*", 4, 2),
        ]
        assert await described(broker, version, operation=4) == [(2, "other", 3, ALICE, "*", 4, 2)]
        filters = [
            DeleteAclsFilter(2, "orders", 3, None, None, 1, 1),
            DeleteAclsFilter(2, "orders-7", 2, None, None, 1, 1),
            DeleteAclsFilter(2, "none", 3, None, None, 1, 1),
        ]
        deleted = await broker.admin.call(DeleteAclsRequest(filters), version)
        assert [[one.pattern_type for one in result.matching_acls] for result in deleted.filter_results] == [
            [3],
            [4],
            [],
        ]
        assert [name for _, name, *_ in await described(broker, version)] == ["other"]


async def test_each_rule_of_a_request_is_judged_alone(tmp_path: Path) -> None:
    async with secured_broker(tmp_path) as broker:
        wanted = [
            creation(),
            creation("wrong", resource_type=4),
            creation(""),
            creation(principal="alice"),
            creation(operation=12),
        ]
        results = (await broker.admin.call(CreateAclsRequest(wanted))).results
        assert results == [
            AclCreationResult(0, None),
            AclCreationResult(42, "The only valid name for the CLUSTER resource is kafka-cluster"),
            AclCreationResult(42, "Invalid empty resource name"),
            AclCreationResult(
                42,
                "Could not parse principal from `alice` (no colon is present separating the principal type from the "
                "principal name)",
            ),
            AclCreationResult(0, None),
        ]
        assert len(await described(broker)) == 2


async def test_a_filter_with_an_unknown_number_is_refused_and_the_others_are_not(tmp_path: Path) -> None:
    async with secured_broker(tmp_path) as broker:
        await broker.admin.call(CreateAclsRequest([creation()]))
        reply = await broker.admin.call(
            DeleteAclsRequest(
                [DeleteAclsFilter(0, None, 1, None, None, 1, 1), DeleteAclsFilter(2, None, 1, None, None, 1, 1)]
            )
        )
        assert [result.error_code for result in reply.filter_results] == [ErrorCode.INVALID_REQUEST, 0]
        assert len(reply.filter_results[1].matching_acls) == 1
        refused = await broker.admin.call(DescribeAclsRequest(0, None, 1, None, None, 1, 1))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "resourceType" in refused.error_message


async def test_rules_survive_a_restart(tmp_path: Path) -> None:
    async with secured_broker(tmp_path) as broker:
        await broker.admin.call(CreateAclsRequest([creation(), creation("x", resource_type=5, operation=15)]))
    async with secured_broker(tmp_path) as broker:
        assert [name for _, name, *_ in await described(broker)] == ["orders", "x"]
        rights = broker.acls.authorizer.rights(ALICE, "10.0.0.1")
        assert rights.may(READ, TOPIC, "orders")
        assert rights.may(AclOperation.TWO_PHASE_COMMIT, AclResource.TRANSACTIONAL_ID, "x")


async def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker:
        for request in (
            DescribeAclsRequest(1, None, 1, None, None, 1, 1),
            CreateAclsRequest([creation()]),
            DeleteAclsRequest([DeleteAclsFilter(2, None, 1, None, None, 1, 1)]),
        ):
            reply = await broker.call(request)
            results = getattr(reply, "results", None) or getattr(reply, "filter_results", None) or [reply]
            assert {result.error_code for result in results} == {ErrorCode.SECURITY_DISABLED}


async def test_a_super_user_that_is_no_principal_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"super\.users: Could not parse principal from `admin`"):
        async with secured_broker(tmp_path, super_users="User:backup; admin"):
            """The start fails."""


async def test_a_broker_on_which_nobody_may_add_the_first_rule_says_so(tmp_path: Path) -> None:
    found: list[Any] = []
    node = Node(
        Settings(
            log_dirs=str(tmp_path), listeners=("PLAINTEXT://127.0.0.1:0",), authorizer_class_name=STANDARD_AUTHORIZER
        )
    )
    with events_to(lambda _logger, _level, event: found.append(event["event"])):
        await node.start()
        await node.stop()
    assert "nobody_has_rights" in found


async def test_the_old_class_name_of_kafkas_authorizer_has_rules_in_force_too(tmp_path: Path) -> None:
    async with secured_broker(tmp_path, authorizer_class_name="kafka.security.authorizer.AclAuthorizer") as broker:
        refused = await broker.alice.call(CreateAclsRequest([AclCreation(2, "orders", 3, ALICE, "*", 3, 3)]))
        assert [result.error_code for result in refused.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


@pytest.mark.parametrize(
    ("written", "client"),
    [
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0::7", "2001:db8::7"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
async def test_a_rule_concerns_its_host_however_the_address_is_written(
    tmp_path: Path, written: str, client: str
) -> None:
    def denied(broker: SecuredBroker) -> bool:
        return not broker.acls.authorizer.rights(ALICE, client).may(READ, TOPIC, "orders")

    async with secured_broker(tmp_path) as broker:
        await broker.allow(rule(READ, TOPIC, "orders"))
        assert not denied(broker)
        wanted = creation(host=written, permission_type=2)
        await broker.admin.call(CreateAclsRequest(creations=[wanted]), 3)
        assert denied(broker)
        asked = DeleteAclsFilter(1, None, 1, None, written, 1, 1)
        deleted = await broker.admin.call(DeleteAclsRequest(filters=[asked]), 3)
        assert [one.host for one in deleted.filter_results[0].matching_acls] == [client]
        assert not denied(broker)
