"""The HTTP listener of a node: it is bound first, answers while the node starts, and observes the node from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fencepost.broker.config import Settings
from fencepost.broker.http.listener import HttpListener
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metrics.connection_rates import CreationRates
from fencepost.broker.metrics.group_lags import GroupLags
from fencepost.broker.metrics.loop_delay import LoopDelay
from fencepost.broker.metrics.node_view import NodeView
from fencepost.broker.metrics.producer_clients import ProducerClients
from fencepost.broker.metrics.request_metrics import RequestMetrics
from fencepost.broker.metrics.storage_metrics import DepartedTraffic, SyncMetrics
from fencepost.broker.metrics.transaction_metrics import TransactionMetrics
from fencepost.broker.network.network_memory import NetworkMemory
from fencepost.broker.network.server import Server
from fencepost.broker.requests.api import Services

if TYPE_CHECKING:
    from fencepost.broker.cluster.machines.engine_figures import EngineFigures
    from fencepost.broker.security.tls import ListenerTls
    from fencepost.check_back.service import CheckBack


class HttpService:
    """Made before the node's parts; `accept`, then `observe` with them, then `serve`. Raises StartError."""

    def __init__(self, settings: Settings, failure: Callable[[], str | None]) -> None:
        self._settings = settings
        self._failure = failure
        self._listener = HttpListener(settings)
        self._view: NodeView | None = None
        self._observed: tuple[RequestMetrics, ProducerClients] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self._listener.host, self._listener.port

    async def accept(self, tls: ListenerTls | None) -> None:
        """Answer requests: until `serve`, that the broker is starting. tls: of this listener, for `https://`."""
        await self._listener.accept(tls)

    def observe(self, services: Services) -> None:
        """Count the requests to these services, and to copies that are made of them from now on."""
        clients = ProducerClients(services.clock)
        requests = RequestMetrics(clients)
        services.observer = requests
        self._observed = requests, clients

    def serve(
        self,
        services: Services,
        servers: Sequence[Server],
        network_memory: NetworkMemory,
        certificates: Mapping[str, ListenerTls],
        *,
        check_back: CheckBack | None = None,
        engine_figures: Callable[[], EngineFigures] | None = None,
    ) -> None:
        """Answer from a node that has started.

        certificates: those of the listeners with TLS, by name. check_back: None without resolvers. engine_figures:
        None if the files of the logs are the broker's own.
        """
        assert self._observed is not None, "the node's requests are observed before it serves them"
        requests, clients = self._observed
        topics, transactions = services.topics, TransactionMetrics(services.clock)
        syncs = SyncMetrics()
        departed = DepartedTraffic(topics.directory, syncs)
        rates = CreationRates(servers)

        def deleted(topic: TopicMetadata) -> None:
            departed.topic_deleted(topic)
            requests.topic_deleted(topic.name, topic.topic_id)

        def minute_over() -> None:
            requests.turn()
            rates.turn()

        topics.on_deleted.append(deleted)
        topics.directory.flusher.observer = syncs
        services.transactions.observer = transactions
        loop_delay = LoopDelay(asyncio.get_running_loop(), minute_over)
        loop_delay.start()
        self._view = NodeView(
            services=services,
            settings=self._settings,
            servers=servers,
            network_memory=network_memory,
            requests=requests,
            clients=clients,
            syncs=syncs,
            departed=departed,
            transactions=transactions,
            loop_delay=loop_delay,
            creation_rates=rates,
            group_lags=GroupLags(),
            certificates=certificates,
            check_back=check_back,
            engine_figures=engine_figures,
            started_ms=services.clock.now_ms(),
            data_directory=topics.directory.path,
            failure=self._failure,
        )
        self._listener.serve(lambda: self._view)

    def close(self) -> None:
        """Close the port and stop observing."""
        self._listener.close()
        if self._view is not None:
            self._view.loop_delay.close()
            self._view = None
