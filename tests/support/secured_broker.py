"""A whole broker with an authorizer, and clients of any principal that talk to its dispatcher in frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from fencepost.broker.config import Settings
from fencepost.broker.node import Node
from fencepost.broker.requests.api import APIS, Services
from fencepost.broker.security.acl_store import Acls
from fencepost.broker.security.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    AclRule,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.schema import decode
from tests.support.known_requests import FrameClient

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN, ALICE = "User:admin", "User:alice"


def rule(
    operation: AclOperation,
    resource: AclResource,
    name: str = CLUSTER_NAME,
    *,
    principal: str = ALICE,
    host: str = "*",
    pattern: AclPattern = AclPattern.LITERAL,
    permission: AclPermission = AclPermission.ALLOW,
) -> AclRule:
    """A rule for alice that allows an operation."""
    return AclRule(resource, pattern, name, principal, host, operation, permission)


class SecuredClient(FrameClient):
    """A connection of one principal."""

    def __init__(self, services: Services, principal: str) -> None:
        super().__init__(services)
        self.connection.principal = principal

    async def call(self, request: Any, version: int | None = None) -> Any:
        """The decoded reply, None if there is none. Raises ConnectionError if the connection is closed."""
        api = APIS[request.api_key]
        version = api.maximum_version if version is None else version
        reply = await self.send(bytes(request_frame(1, "client", request, version)))
        if isinstance(reply, str):
            raise ConnectionError(reply)
        if reply is None:
            return None
        header_bytes = 9 if response_header_version(api.key, version) else 8  # with the length of the frame
        return decode(api.response, memoryview(reply), version, header_bytes)


class SecuredBroker:
    """A running node. admin is a super user; alice has the rights that a test gives her."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.services = node.services
        self.admin = SecuredClient(node.services, ADMIN)
        self.alice = SecuredClient(node.services, ALICE)

    @property
    def acls(self) -> Acls:
        return cast("Acls", self.services.acls)

    async def allow(self, *rules: AclRule) -> None:
        await self.acls.add(rules)

    async def revoke_all(self) -> None:
        await self.acls.remove([lambda _: True])

    async def create_topics(self, names: Iterable[str], partition_count: int = 1) -> None:
        for name in names:
            error, message = await self.services.topics.create(name, partition_count, {})
            assert not error, message

    def topic_id(self, name: str) -> bytes:
        metadata = self.services.topics.metadata.get(name)
        assert metadata is not None
        return metadata.topic_id


@asynccontextmanager
async def secured_broker(directory: Path, **chosen: Any) -> AsyncIterator[SecuredBroker]:
    defaults: dict[str, Any] = {
        "log_dirs": str(directory),
        "listeners": ("PLAINTEXT://127.0.0.1:0",),
        "transaction_state_log_num_partitions": 1,
        "offsets_topic_num_partitions": 1,
        "fencepost_shutdown_drain_ms": 200,
        "authorizer_class_name": STANDARD_AUTHORIZER,
        "super_users": ADMIN,
        "unstable_api_versions_enable": True,
        "transaction_two_phase_commit_enable": True,
    }
    node = Node(Settings(**(defaults | chosen)))
    await node.start()
    try:
        await asyncio.wait_for(node.ensure_loaded(), 30)
        broker = SecuredBroker(node)
        for key_type in (0, 1):
            found = await broker.admin.call(FindCoordinatorRequest("", key_type, ["any"]))
            assert found.coordinators[0].error_code == ErrorCode.NONE
        yield broker
    finally:
        await node.stop()
