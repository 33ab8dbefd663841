"""Handlers as a client meets them, without sockets: real topics and logs; requests and responses go through bytes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import fencepost.broker.handlers.acls
import fencepost.broker.handlers.alter_configs
import fencepost.broker.handlers.api_versions
import fencepost.broker.handlers.client_quotas
import fencepost.broker.handlers.cluster
import fencepost.broker.handlers.configs
import fencepost.broker.handlers.delegation_tokens
import fencepost.broker.handlers.delete_records
import fencepost.broker.handlers.features
import fencepost.broker.handlers.fetch
import fencepost.broker.handlers.leader_epochs
import fencepost.broker.handlers.list_offsets
import fencepost.broker.handlers.log_dirs
import fencepost.broker.handlers.metadata
import fencepost.broker.handlers.produce
import fencepost.broker.handlers.producers
import fencepost.broker.handlers.quorum
import fencepost.broker.handlers.reassignments
import fencepost.broker.handlers.sasl
import fencepost.broker.handlers.scram_credentials
import fencepost.broker.handlers.telemetry
import fencepost.broker.handlers.topic_deletion
import fencepost.broker.handlers.topics  # noqa: F401  # all for what they put into APIS
from fencepost.broker.config import Endpoint, Settings
from fencepost.broker.hosting.broker_configs import BrokerConfigs
from fencepost.broker.hosting.client_metrics_configs import ClientMetricsConfigs
from fencepost.broker.hosting.features import Features
from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.hosting.scram_credentials import ScramCredentials
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.random_ids import RandomIds
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.quotas.client_quotas import ClientQuotas
from fencepost.broker.requests.api import APIS, RequestContext, Services
from fencepost.broker.requests.fetch_sessions import FetchSessionCache
from fencepost.broker.requests.long_polls import LongPoll
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.broker.telemetry.client_metrics import ClientMetrics
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, build_batch
from fencepost.protocol.schema import decode, encode_chunks
from tests.support.handler_calls import LocalConnection, awaited_response, response_of

NODE_ID = 7
HOST = "broker.example"
PORT = 19092
CLUSTER_ID = "fencepost-handler-test"
NOW_MS = 1_700_000_000_000


@dataclass
class ManualClock:
    """Time stands still until a test moves it."""

    time_ms: int = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


@dataclass
class ScriptedVerifier:
    """In place of the transaction coordinator: answers one prepared error per call, NONE when none is prepared.

    is_elsewhere: the answer comes from another node, so later than the step that asks.
    confirms_in_same_step: `is_confirmed` returns its answer, instead of leaving it to `verify`.
    """

    is_elsewhere: bool = False
    confirms_in_same_step: bool = False
    answers: list[ErrorCode | Mapping[TopicPartition, ErrorCode]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)

    def is_confirmed(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic_partition: TopicPartition
    ) -> bool:
        is_confirmed = not self.answers or self.answers[0] is ErrorCode.NONE
        if self.is_elsewhere or not self.confirms_in_same_step or not is_confirmed:
            return False
        del self.answers[:1]
        call = {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": producer_epoch}
        self.calls.append({"topic_partitions": [topic_partition], "add": False, **call})
        return True

    def verify(
        self, *, topic_partitions: Sequence[TopicPartition], **call: Any
    ) -> eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        self.calls.append({"topic_partitions": list(topic_partitions), **call})
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        errors = {name: answer if isinstance(answer, ErrorCode) else answer[name] for name in topic_partitions}
        return self._answer_later(errors) if self.is_elsewhere else eager.Finished(errors)

    async def _answer_later(self, errors: dict[TopicPartition, ErrorCode]) -> dict[TopicPartition, ErrorCode]:
        await asyncio.sleep(0)
        return errors


@dataclass
class HandlerBroker:
    """The services that data handlers use, and how to call a handler as dispatch does."""

    services: Services
    topics: Topics
    clock: ManualClock
    verifier: ScriptedVerifier

    def context(self, version: int) -> RequestContext:
        return RequestContext(
            services=self.services,
            api_version=version,
            correlation_id=1,
            client_id="test",
            connection=LocalConnection(),
        )

    def start(self, request: Any, version: int) -> Any:
        """Call the handler: a response, None, or something to await.

        The request goes through its bytes, which are overwritten as soon as the handler does not need them any more.
        """
        api = APIS[request.api_key]
        assert api.minimum_version <= version <= api.maximum_version
        sent = bytearray().join(encode_chunks(request, version))
        context = self.context(version)
        outcome = api.handler(context, decode(api.request, memoryview(sent), version))
        if not context.needs_frame:
            sent[:] = bytes(len(sent))
        if isinstance(outcome, LongPoll):
            return awaited_response(polled(outcome))
        return awaited_response(outcome) if inspect.isawaitable(outcome) else response_of(outcome)

    async def call(self, request: Any, version: int | None = None) -> Any:
        """The response as the client decodes it, at the highest version unless given; None when there is none."""
        api = APIS[request.api_key]
        version = api.maximum_version if version is None else version
        return self.received(await finished(self.start(request, version)), version)

    def received(self, response: Any, version: int) -> Any:
        """A response after its way over the wire."""
        if response is None:
            return None
        return decode(type(response), b"".join(encode_chunks(response, version)), version)

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        log = self.topics.log(TopicPartition(topic, partition))
        assert log is not None
        return log

    def topic_id(self, topic: str) -> bytes:
        metadata = self.topics.metadata.get(topic)
        assert metadata is not None
        return metadata.topic_id

    async def create_topic(self, name: str, partition_count: int = 1, configs: Mapping[str, str] | None = None) -> None:
        error, message = await self.topics.create(name, partition_count, configs or {})
        assert error is ErrorCode.NONE, message


async def finished(outcome: Any) -> Any:
    return await outcome if inspect.isawaitable(outcome) else outcome


async def polled(waiting: LongPoll[Any]) -> Any:
    """What a long poll answers, asked whenever it wakes."""
    woken = asyncio.Event()
    try:
        waiting.begin(woken.set)
        while (response := waiting.poll()) is None:
            await woken.wait()
            woken.clear()
        return response
    finally:
        waiting.end()


@asynccontextmanager
async def open_broker(directory: Path, **settings: Any) -> AsyncIterator[HandlerBroker]:
    """A broker's services over logs in `directory`; settings by attribute name."""
    chosen = Settings(log_dirs=str(directory), node_id=NODE_ID, **settings)
    clock = ManualClock()
    verifier = ScriptedVerifier()
    store = InMemoryMetadataStore(CLUSTER_ID)
    disk = LocalDisk()
    logs = LogDirectory(str(directory), disk=disk, clock=clock)
    broker_configs = BrokerConfigs(store, chosen)
    await broker_configs.open()
    topics = Topics(store, logs, chosen)
    await topics.open()
    broker_configs.on_changed.append(topics.settings_changed)
    group_configs = GroupConfigs(store, chosen)
    await group_configs.open()
    client_metrics_configs = ClientMetricsConfigs(store)
    await client_metrics_configs.open()
    client_metrics = ClientMetrics(client_metrics_configs, chosen, clock, RandomIds().uuid)
    client_quotas = ClientQuotas(store, chosen, clock)
    await client_quotas.open()
    features = Features(store, chosen)
    await features.open()
    scram_credentials = ScramCredentials(store)
    await scram_credentials.open()
    services = Services(
        settings=chosen,
        clock=clock,
        topics=topics,
        transactions=cast("Any", None),
        verifier=cast("Any", verifier),
        groups=cast("Any", None),
        share_service=cast("Any", None),
        group_configs=group_configs,
        broker_configs=broker_configs,
        client_metrics_configs=client_metrics_configs,
        client_metrics_service=lambda: client_metrics,
        client_quotas=client_quotas,
        features=features,
        scram_credentials=scram_credentials,
        fetch_sessions=FetchSessionCache(chosen.max_incremental_fetch_session_cache_slots),
        node_id=NODE_ID,
        cluster_id=CLUSTER_ID,
        listener=Endpoint("", HOST, PORT),
    )
    try:
        yield HandlerBroker(services, topics, clock, verifier)
    finally:
        await logs.close()
        disk.close()


def batch(
    *values: bytes,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    timestamp_ms: int = NOW_MS,
    **build: Any,
) -> bytes:
    """A record batch as a producer sends it."""
    return bytes(
        build_batch(
            [Record(offset, timestamp_ms, None, value, ()) for offset, value in enumerate(values or (b"value",))],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
            **build,
        )
    )
