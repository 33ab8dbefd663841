"""The handlers of transactions as a client meets them, through the bytes of requests and responses, over logs in
memory.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import fencepost.broker.handlers.markers
import fencepost.broker.handlers.transaction_admin
import fencepost.broker.handlers.transactions  # noqa: F401  # all for what they put into APIS
from fencepost.broker.config import Endpoint, Settings
from fencepost.broker.kernel.clock import Clock, SystemClock
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.requests.api import APIS, RequestContext, Services
from fencepost.broker.transaction.producer_ids import ProducerIds
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.verification import TransactionVerifier
from fencepost.protocol.schema import decode, encode
from tests.support.handler_calls import LocalConnection, response_of
from tests.support.memory_topics import MemoryTopics


@dataclass
class TransactionHandlers:
    """The services behind the handlers, and how to call one."""

    services: Services
    topics: MemoryTopics

    async def call(self, request: Any, version: int) -> Any:
        """The response as the client decodes it."""
        api = APIS[request.api_key]
        assert api.minimum_version <= version <= api.maximum_version
        context = RequestContext(
            services=self.services,
            api_version=version,
            correlation_id=1,
            client_id="test",
            connection=LocalConnection(),
        )
        outcome = api.handler(context, decode(api.request, bytes(encode(request, version)), version))
        response = response_of(await outcome if inspect.isawaitable(outcome) else outcome)
        return decode(api.response, bytes(encode(response, version)), version)

    def failed(self, request: Any, error: int, version: int) -> Any:
        """What a client gets when the request failed as a whole."""
        api = APIS[request.api_key]
        return decode(api.response, bytes(encode(api.failed(request, cast("Any", error), version), version)), version)

    async def settled(self) -> None:
        """Let what was prepared become complete."""
        for _ in range(1000):
            if not any(transaction.state.is_prepared for transaction in self.services.transactions.transactions()):
                return
            await asyncio.sleep(0)
        raise AssertionError("a transaction stays prepared")


@asynccontextmanager
async def transaction_handlers(
    settings: Settings | None = None, clock: Clock | None = None, **partition_counts: int
) -> AsyncIterator[TransactionHandlers]:
    """Handlers over topics in memory with these partition counts."""
    topics = MemoryTopics(**partition_counts)
    settings = settings or Settings()
    clock = clock or SystemClock()
    transactions = TransactionService(cast("Any", topics), ProducerIds(InMemoryMetadataStore()), settings, clock)
    await transactions.start()
    await transactions.ensure_loaded()
    services = Services(
        settings=settings,
        clock=clock,
        topics=cast("Any", topics),
        transactions=transactions,
        verifier=TransactionVerifier(transactions),
        groups=cast("Any", None),
        share_service=cast("Any", None),
        group_configs=cast("Any", None),
        client_metrics_configs=cast("Any", None),
        client_metrics_service=cast("Any", None),
        broker_configs=cast("Any", None),
        client_quotas=cast("Any", None),
        features=cast("Any", None),
        scram_credentials=cast("Any", None),
        fetch_sessions=cast("Any", None),
        node_id=0,
        cluster_id="test",
        listener=Endpoint("", "localhost", 9092),
    )
    try:
        yield TransactionHandlers(services, topics)
    finally:
        await transactions.close()
