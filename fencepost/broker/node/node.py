"""Composition root of one broker: `Node` starts its parts in order and stops them in reverse order."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from fencepost.broker.config import DynamicLayers, Endpoint, Listener, Settings, parse_listeners
from fencepost.broker.config.listeners import HTTP_LISTENER, inter_broker_listener
from fencepost.broker.hosting.broker_configs import BrokerConfigs
from fencepost.broker.hosting.membership import Cluster, Engine
from fencepost.broker.hosting.peers import Connect, Peers
from fencepost.broker.hosting.placement import NodeAddress, Placement, SingleNodePlacement
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock, SystemClock
from fencepost.broker.kernel.loggers import Loggers
from fencepost.broker.kernel.supervision import CURRENT, Supervisor
from fencepost.broker.metadata.sqlite import SqliteMetadataStore
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.network.server import BoundListener, SocketListener
from fencepost.broker.node.background import log_requests, sweep_regularly
from fencepost.broker.node.coordinators import Coordinators, start_coordinators
from fencepost.broker.node.documents import (
    Documents,
    client_metrics_service,
    judge_rights,
    open_broker_configs,
    open_documents,
)
from fencepost.broker.node.foundation import Foundation
from fencepost.broker.node.listeners import (
    Network,
    Servers,
    Serving,
    Watch,
    bind_listeners,
    encrypt,
    listen_to_http,
    open_network,
    renew_certificates,
)
from fencepost.broker.node.membership import (
    advertised_by,
    follow_documents,
    join,
    keep,
    open_channel,
    read_near,
)
from fencepost.broker.node.storage import (
    close_disk_last,
    host_topics,
    make_data_directory,
    make_logs,
    open_store,
    sqlite_store,
)
from fencepost.broker.requests.api import Services
from fencepost.broker.requests.fetch_sessions import FetchSessionCache
from fencepost.broker.storage.descriptors import Descriptors, descriptor_limit
from fencepost.broker.storage.disk import Disk
from fencepost.broker.storage.local_disk import LocalDisk

if TYPE_CHECKING:
    import random

    from fencepost.broker.http.service import HttpService
    from fencepost.broker.network.node_sockets import NodeSockets
    from fencepost.broker.security.tls import BrokerTls

TURNS_TO_ACCEPT: Final = 5
"""Turns of the loop after which a connection that was being accepted is known, and closed: its client would wait."""


class Node:
    """One broker. Several may live in one process, each with its own data directory and ports.

    disk, store: the machine's file system and an SQLite file in the data directory, unless given. The caller closes a
                 disk that it passes in.
    local_disk:  makes the machine's file system, if no disk is given.
    bind:        binds the address of a listener: a socket of this machine, unless given.
    randomness:  the source of unguessable ids: the machine's, unless given.
    placement:   the leaders of all partitions: this node leads them, unless given.
    cluster:     if partitions move between nodes, in place of the placement.
    node_sockets: sockets for the connections between nodes of a cluster: those of a listener, unless given.
    connect:     opener of connections to the other nodes of a placement: over TCP, unless given.
    peers:       channel to the other nodes of a placement: connections opened by `connect`, unless given.
    watch:       puts something before the dispatcher of each listener, such as the faults of a test; nothing, unless
                 given.
    Between `start` and `stop`, handlers use `services`, and `address` is that of the first listener.
    failure:   the reason why the node stopped after an unexpected failure; else None.
    on_failed: the node calls it in that same step; set by the code that then ends the process.
    """

    failure: str | None = None
    on_failed: Callable[[], None] | None = None

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        local_disk: Callable[[Descriptors], LocalDisk] = LocalDisk,
        store: MetadataStore | None = None,
        bind: Callable[[Listener, Settings], BoundListener] = SocketListener,
        randomness: random.Random | None = None,
        placement: Placement | None = None,
        cluster: Cluster | None = None,
        node_sockets: NodeSockets | None = None,
        connect: Connect | None = None,
        peers: Peers | None = None,
        loggers: Loggers | None = None,
        watch: Watch | None = None,
    ) -> None:
        # A copy: settings that are changed while the broker runs change it.
        self.settings = settings = dataclasses.replace(settings, layers=DynamicLayers())
        self.data_directory = os.path.abspath(settings.log_dirs)
        self.cluster_id = ""
        self.start_duration_s = 0.0
        descriptors = Descriptors(descriptor_limit())
        self._is_disk_local = disk is None
        self._disk = local_disk(descriptors) if disk is None else disk
        self._store = sqlite_store(self.data_directory, self._disk) if store is None else store
        self._cleanup = AsyncExitStack()
        self._base = Foundation(
            settings=settings,
            data_directory=self.data_directory,
            clock=SystemClock() if clock is None else clock,
            disk=self._disk,
            descriptors=descriptors,
            store=self._store,
            loggers=Loggers() if loggers is None else loggers,
            randomness=randomness,
            cleanup=self._cleanup,
        )
        self._bind = bind
        self._cluster = cluster
        self._membership = None if cluster is None else cluster.membership
        self._placement = placement if cluster is None else cluster.membership.placement
        self._peers = peers
        self._watch = watch
        self._node_sockets = node_sockets
        self._connect = connect if node_sockets is None else node_sockets.connect
        self._services: Services | None = None
        self.coordinators: Coordinators | None = None
        self.servers = Servers()
        self._http: HttpService | None = None
        self._tls: BrokerTls | None = None

    @property
    def services(self) -> Services:
        if self._services is None:
            raise RuntimeError("the node is not started")
        return self._services

    @property
    def address(self) -> Endpoint:
        """The address of the first listener, with its actual port."""
        return self.servers.of_clients[0].bound.address

    @property
    def addresses(self) -> list[Endpoint]:
        """The address of each listener, in the order of `listeners`."""
        return [server.bound.address for server in self.servers.of_clients]

    @property
    def advertised_addresses(self) -> list[Endpoint]:
        """The address that each listener advertises to its clients."""
        return [server.bound.advertised for server in self.servers.of_clients]

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port of the HTTP listener, if there is one."""
        return None if self._http is None else self._http.address

    @property
    def connection_count(self) -> int:
        return sum(server.connection_count for server in self.servers.of_clients)

    async def start(self) -> None:
        """Start all parts; when this returns, clients are served.

        Order: ports, data directory, metadata, recovery of the logs, listeners. Coordinators load meanwhile: produce
        and fetch do not wait for them; requests to a coordinator wait while it loads.
        Raises StartError or StorageError, each with one line for the user; all parts are closed then.
        """
        started_s = time.perf_counter()
        CURRENT.set(Supervisor(self._fail))
        try:
            await self._start()
        except BaseException:
            await self._cleanup.aclose()
            raise
        self.start_duration_s = time.perf_counter() - started_s

    async def ensure_loaded(self) -> None:
        """Wait until all logs are open and all coordinators have loaded, or failed to."""
        await self.services.topics.ensure_opened()
        await self.services.transactions.ensure_loaded()
        await self.services.groups.ensure_loaded()
        if self.coordinators is not None:
            await self.coordinators.shares.ensure_loaded()

    async def hand_all_over(self) -> None:
        """In a cluster, hand all partitions over to other nodes, so that a stop costs its clients nothing.

        Takes up to `fencepost.shutdown.handover.ms`, and is not needed before `stop`.
        """
        if self._membership is not None:
            await self._membership.hand_all_over(within_s=self.settings.fencepost_shutdown_handover_ms / 1000)

    async def stop(self) -> None:
        """Answer requests in flight, sync all logs and mark the data directory as cleanly closed."""
        await self._cleanup.aclose()
        self._services = None
        self.servers = Servers()

    async def crash(self) -> None:
        """End as `kill -9` ends a process: connections break without an answer, and no file is written any more.

        For nodes with their own disk and store. The caller ends the event loop, with the node's tasks on it.
        """
        assert isinstance(self._disk, LocalDisk)
        assert isinstance(self._store, SqliteMetadataStore)
        for server in self.servers:
            server.refuse()
        self._disk.crash()
        for _ in range(TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        for server in self.servers:
            server.abort()
        await self._store.crash()
        self._cleanup.pop_all()

    def _fail(self, reason: str) -> None:
        """Stop serving clients at once: later acknowledgements might be false."""
        self.failure = reason
        for server in self.servers:
            server.abort()
        if self.on_failed is not None:
            self.on_failed()

    async def _start(self) -> None:
        """Start the parts in order; each registers its `close` in `cleanup`.

        A broker that is alone has no channel, no lease, and follows no documents. A process of several and a machine
        of a cluster have a membership; processes have node sockets, too. Simulated nodes differ in their foundation.
        """
        base, settings, membership, node_sockets = self._base, self.settings, self._membership, self._node_sockets
        placement, peers = self._placement, self._peers
        if isinstance(self._disk, LocalDisk) and self._is_disk_local:
            close_disk_last(base, self._disk)
        listeners = parse_listeners(settings)
        between_brokers = inter_broker_listener(settings, listeners)
        if placement is not None and peers is None:
            peers = open_channel(base, placement, self._connect, None if node_sockets is not None else between_brokers)
        bound_listeners = bind_listeners(base, listeners, self._bind)
        http = self._http = listen_to_http(base, lambda: self.failure)

        if self._is_disk_local:
            make_data_directory(self.data_directory)
        logs = make_logs(base, self._cluster)
        self.cluster_id = await open_store(base)
        broker_configs = await open_broker_configs(base, is_alone=membership is None)
        tls = self._tls = encrypt(settings, listeners)
        if http is not None:
            # From here on probes are answered: if a later step fails, they report it.
            await http.accept(None if tls is None else tls.listeners.get(HTTP_LISTENER))
        documents = await open_documents(base)
        if membership is not None:
            addresses = advertised_by(bound_listeners, between_brokers, node_sockets)
            await join(base, membership, logs.engine, addresses)
        here = bound_listeners[listeners.index(between_brokers)].advertised
        alone = SingleNodePlacement(NodeAddress(settings.node_id, here.host, here.port))
        topics = await host_topics(base, logs, broker_configs, placement or alone)
        coordinators = await start_coordinators(base, topics, logs.directory, documents.features, peers)
        self.coordinators = coordinators
        services = self._make_services(broker_configs, documents, topics, coordinators, bound_listeners[0].advertised)
        services.near_reads = read_near(settings, logs.engine, placement)
        await judge_rights(base, services)
        followed = None if placement is None else follow_documents(base, services, peers)
        if http is not None:
            http.observe(services)
        self._services = services
        sweep_regularly(base, logs.directory)
        network = await open_network(
            base, documents, broker_configs, [bound.listener for bound in bound_listeners], tls
        )
        serving = Serving(base, network, services, logs.engine, self._watch)
        of_listeners = await serving.start(self.servers, bound_listeners, node_sockets)
        if http is not None:
            self._serve_http(http, services, network, logs.engine)
        if tls is not None:
            renew_certificates(base, tls, broker_configs)
        if followed is not None:
            followed.start()
            base.cleanup.push_async_callback(followed.close)
        if coordinators.check_back is not None:
            coordinators.check_back.start()
        if membership is not None:
            keep(base, membership, logs.engine, topics)
        log_requests(base, of_listeners)

    def _serve_http(self, http: HttpService, services: Services, network: Network, engine: Engine | None) -> None:
        check_back = None if self.coordinators is None else self.coordinators.check_back
        http.serve(
            services,
            self.servers.of_clients,
            network.memory,
            {} if network.tls is None else network.tls.listeners,
            check_back=None if check_back is None else check_back.core,
            engine_figures=None if engine is None else engine.figures,
        )

    def _make_services(
        self,
        broker_configs: BrokerConfigs,
        documents: Documents,
        topics: Topics,
        coordinators: Coordinators,
        advertised: Endpoint,
    ) -> Services:
        settings, membership = self.settings, self._membership
        return Services(
            settings=settings,
            clock=self._base.clock,
            topics=topics,
            transactions=coordinators.transactions,
            verifier=coordinators.verifier,
            groups=coordinators.groups,
            share_service=coordinators.shares.get,
            dead_letter_counts=coordinators.shares.dead_letter_counts,
            waiting_copies=coordinators.shares.waiting_copies,
            group_configs=coordinators.group_configs,
            client_metrics_configs=documents.client_metrics_configs,
            client_metrics_service=client_metrics_service(self._base, documents),
            broker_configs=broker_configs,
            client_quotas=documents.client_quotas,
            features=documents.features,
            scram_credentials=documents.scram_credentials,
            delegation_tokens=documents.delegation_tokens,
            fetch_sessions=FetchSessionCache(
                settings.max_incremental_fetch_session_cache_slots,
                self._base.randomness,
                maximum_bytes=settings.fencepost_fetch_sessions_max_bytes,
            ),
            node_id=settings.node_id,
            cluster_id=self.cluster_id,
            listener=advertised._replace(name=""),
            leader_choices=None if membership is None else membership.leader_choices,
            loggers=self._base.loggers,
        )

    def reload_certificates(self) -> None:
        """Read the keys and certificates of all listeners again; those in force stay if that fails."""
        if self._tls is not None:
            self._tls.renew("SIGHUP")
