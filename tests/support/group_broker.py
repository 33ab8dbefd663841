"""The group APIs as a client meets them, without sockets: logs in memory, requests and responses through their
bytes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self, cast

import fencepost.broker.handlers.consumer_groups
import fencepost.broker.handlers.group_admin
import fencepost.broker.handlers.group_membership
import fencepost.broker.handlers.group_offsets
import fencepost.broker.handlers.offset_deletion
import fencepost.broker.handlers.offset_fetch
import fencepost.broker.handlers.streams_groups  # noqa: F401  # all for what they put into APIS
from fencepost.broker.config import Endpoint, Settings
from fencepost.broker.group.service import GroupService
from fencepost.broker.hosting.features import Features
from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TopicPartition
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.requests.api import APIS, RequestContext, Services
from fencepost.broker.share.service import ShareService
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_membership import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from fencepost.protocol.schema import decode, encode_chunks
from tests.support.handler_calls import LocalConnection, response_of
from tests.support.memory_topics import MemoryTopics

START_MS = 1_700_000_000_000


@dataclass
class ManualClock:
    """Time stands still until a test moves it."""

    time_ms: int = START_MS

    def now_ms(self) -> int:
        return self.time_ms


@dataclass
class ScriptedVerifier:
    """In place of the transaction coordinator: answers `error` and remembers what it was asked."""

    error: ErrorCode = ErrorCode.NONE
    calls: list[dict[str, Any]] = field(default_factory=list)

    async def verify(
        self, *, topic_partitions: Sequence[TopicPartition], **call: Any
    ) -> dict[TopicPartition, ErrorCode]:
        self.calls.append({"topic_partitions": tuple(topic_partitions), **call})
        return dict.fromkeys(topic_partitions, self.error)


class GroupBroker:
    """The group service over topics that outlive it: `restart` is a crash after which the page cache is still there."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(group_initial_rebalance_delay_ms=0, **settings)
        self.clock = ManualClock()
        self.features = Features(InMemoryMetadataStore(), self.settings)
        self.group_configs = GroupConfigs(InMemoryMetadataStore(), self.settings)
        self.verifier = ScriptedVerifier()
        self.topics = MemoryTopics(orders=2, payments=1)
        self._suffixes = count(1)
        self.groups = self._make_service()

    def _make_service(self) -> GroupService:
        return GroupService(
            cast("Any", self.topics),
            self.settings,
            self.clock,
            new_member_id_suffix=lambda: str(next(self._suffixes)),
            group_configs=self.group_configs,
        )

    async def start(self, *, create: bool = True) -> None:
        await self.groups.start()
        if create:
            await self.topics.ensure_internal(CONSUMER_OFFSETS_TOPIC)
        await self.groups.ensure_loaded()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.groups.close()

    async def restart(self) -> None:
        await self.groups.close()
        self.groups = self._make_service()
        await self.groups.start()
        await self.groups.ensure_loaded()

    def topic_id(self, name: str) -> bytes:
        topic = self.topics.metadata.get(name)
        assert topic is not None
        return topic.topic_id

    def services(self) -> Services:
        return Services(
            settings=self.settings,
            clock=self.clock,
            topics=cast("Any", self.topics),
            transactions=cast("Any", None),
            verifier=cast("Any", self.verifier),
            groups=self.groups,
            share_service=lambda: ShareService(
                cast("Any", self.topics),
                self.groups,
                self.group_configs,
                self.settings,
                self.clock,
                take_producer_id=lambda: None,
            ),
            group_configs=self.group_configs,
            client_metrics_configs=cast("Any", None),
            client_metrics_service=cast("Any", None),
            broker_configs=cast("Any", None),
            client_quotas=cast("Any", None),
            features=self.features,
            scram_credentials=cast("Any", None),
            fetch_sessions=cast("Any", None),
            node_id=1,
            cluster_id="cluster",
            listener=Endpoint("", "broker.example", 9092),
        )

    # Requests

    async def call(self, request: Any, version: int | None = None) -> Any:
        """The response as the client decodes it, at the highest version unless given."""
        api = APIS[request.api_key]
        version = api.maximum_version if version is None else version
        sent = memoryview(b"".join(encode_chunks(request, version)))
        context = RequestContext(
            services=self.services(),
            api_version=version,
            correlation_id=1,
            client_id="app",
            connection=LocalConnection(),
        )
        outcome = api.handler(context, decode(api.request, sent, version))
        response = response_of(await outcome if inspect.isawaitable(outcome) else outcome)
        return decode(api.response, b"".join(encode_chunks(response, version)), version)

    def start_call(self, request: Any, version: int | None = None) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(self.call(request, version))

    def failed(self, request: Any, error: ErrorCode, version: int) -> Any:
        """The reply in which the whole request failed."""
        api = APIS[request.api_key]
        return decode(api.response, b"".join(encode_chunks(api.failed(request, error, version), version)), version)

    async def join(self, group_id: str = "g", member_id: str = "", version: int = 9, **fields: Any) -> Any:
        """Join, under the id that the broker asks to join with if it does."""
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"metadata")],
            **fields,
        )
        response = await self.call(request, version)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = response.member_id
            response = await self.call(request, version)
        return response

    async def stable_member(self, group_id: str = "g") -> str:
        """A stable group with one member: the id of that."""
        joined = await self.join(group_id)
        await self.call(
            SyncGroupRequest(
                group_id=group_id,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"assigned")],
            )
        )
        member_id: str = joined.member_id
        return member_id
