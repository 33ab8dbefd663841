"""Composition root of one broker: `Node` makes its parts, starts them in order and stops them in reverse order."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from fencepost.broker.config import DynamicLayers, Endpoint, Listener, Settings, parse_listeners
from fencepost.broker.config.listeners import (
    ALL_INTERFACES,
    HTTP_LISTENER,
    SecurityProtocol,
    inter_broker_listener,
    parse_http_listener,
)
from fencepost.broker.group.service import GroupService
from fencepost.broker.handlers import Services
from fencepost.broker.hosting.broker_configs import BrokerConfigs
from fencepost.broker.hosting.features import TRANSACTION_VERSION, Features
from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.hosting.membership import Membership
from fencepost.broker.hosting.peers import Connect, Peers, TcpPeers
from fencepost.broker.hosting.placement import NO_PORT, NodeAddress, Placement, SingleNodePlacement
from fencepost.broker.hosting.scram_credentials import ScramCredentials
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock, SystemClock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.loggers import Loggers
from fencepost.broker.kernel.random_ids import RandomIds
from fencepost.broker.kernel.supervision import CURRENT, Place, Policy, Supervisor
from fencepost.broker.log.directory.log_directory import LogDirectory, partition_directories
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.network.connection import RequestDispatcher
from fencepost.broker.network.dispatch import Dispatcher
from fencepost.broker.network.network_memory import NetworkMemory
from fencepost.broker.network.server import BoundListener, Server, SocketListener, StartError
from fencepost.broker.network.socket_sender import SendfileSockets
from fencepost.broker.quotas.client_quotas import ClientQuotas
from fencepost.broker.quotas.connections import ConnectionQuotas
from fencepost.broker.requests.fetch_sessions import FetchSessionCache
from fencepost.broker.requests.request_log import RequestLog, is_switched_on
from fencepost.broker.share.lazy_service import LazyShareService
from fencepost.broker.storage.descriptors import Descriptors, descriptor_limit
from fencepost.broker.storage.disk import Disk, StorageError, remedy
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.broker.transaction.producer_ids import BLOCK_KEY, ProducerIds, above_reserved_blocks
from fencepost.broker.transaction.remote_markers import RemoteMarkerChannel
from fencepost.broker.transaction.remote_verification import RemoteTransactionVerifier
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.verification import TransactionVerifier

if TYPE_CHECKING:
    import random

    from fencepost.broker.check_back.service import BrokerCheckBack
    from fencepost.broker.cluster.engine_figures import EngineFigures
    from fencepost.broker.http.service import HttpService
    from fencepost.broker.metadata.followed_documents import FollowedDocuments
    from fencepost.broker.network.authentication import ListenerAuthentication
    from fencepost.broker.network.node_sockets import NodeSockets
    from fencepost.broker.security.tls import BrokerTls

log = get_logger(__name__)

OWNER_ONLY: Final = 0o700
OF_OTHERS: Final = 0o077

SWEEP_TIMER = Place("timer of the sweeps", Policy.RETRY)

Watch = Callable[[RequestDispatcher, Services, asyncio.AbstractEventLoop], RequestDispatcher]
"""Makes the dispatcher that connections use from the broker's own."""

TURNS_TO_ACCEPT = 5
"""Turns of the loop after which a connection that was being accepted is known, and closed: its client would wait."""
LONGEST_SWEEP_INTERVAL_S = 5.0
LONGEST_SWEEP_ROUND_S = 60.0


class Node:
    """One broker. Several may live in one process, each with its own data directory and ports.

    disk, store: the machine's file system and an SQLite file in the data directory, unless given. The caller closes a
                 disk that it passes in.
    local_disk:  makes the machine's file system, where no disk is given.
    bind:        binds the address of a listener: a socket of this machine, unless given.
    randomness:  the source of unguessable ids: the machine's, unless given.
    placement:   the leaders of all partitions: this node leads them, unless given.
    membership:  in a cluster whose directories of partitions move between nodes, in place of the placement.
    node_sockets: with a membership, through which nodes connect to each other: through a listener, unless given.
    connect:     with a placement, opens connections to other nodes: over TCP, unless given.
    peers:       with a placement, the channel to the other nodes: connections opened by `connect`, unless given.
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
        membership: Membership | None = None,
        node_sockets: NodeSockets | None = None,
        connect: Connect | None = None,
        peers: Peers | None = None,
        loggers: Loggers | None = None,
        watch: Watch | None = None,
        engine_figures: Callable[[], EngineFigures] | None = None,
    ) -> None:
        # A copy: settings that are changed while the broker runs change it.
        self.settings = settings = dataclasses.replace(settings, layers=DynamicLayers())
        self.data_directory = os.path.abspath(settings.log_dirs)
        self.cluster_id = ""
        self.start_duration_s = 0.0
        self._clock = SystemClock() if clock is None else clock
        self._descriptors = Descriptors(descriptor_limit())
        self._disk = local_disk(self._descriptors) if disk is None else disk
        self._is_disk_local = disk is None
        self._store = sqlite_store(self.data_directory, self._disk) if store is None else store
        self._bind = bind
        self._randomness = randomness
        self._placement = placement if membership is None else membership.placement
        self._membership = membership
        self._peers = peers
        self._loggers = Loggers() if loggers is None else loggers
        self._watch = watch
        self._engine_figures = engine_figures
        self._node_sockets = node_sockets
        self._connect = connect if node_sockets is None else node_sockets.connect
        self._services: Services | None = None
        self._shares: LazyShareService | None = None
        self._servers: list[Server] = []
        self._node_server: Server | None = None
        self._http: HttpService | None = None
        self._tls: BrokerTls | None = None
        self._cleanup = AsyncExitStack()

    @property
    def services(self) -> Services:
        if self._services is None:
            raise RuntimeError("the node is not started")
        return self._services

    @property
    def address(self) -> Endpoint:
        """The address of the first listener, with its actual port."""
        return self._servers[0].bound.address

    @property
    def addresses(self) -> list[Endpoint]:
        """The address of each listener, in the order of `listeners`."""
        return [server.bound.address for server in self._servers]

    @property
    def advertised_addresses(self) -> list[Endpoint]:
        """The address that each listener advertises to its clients."""
        return [server.bound.advertised for server in self._servers]

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port of the HTTP listener, if there is one."""
        return None if self._http is None else self._http.address

    @property
    def connection_count(self) -> int:
        return sum(server.connection_count for server in self._servers)

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
        if self._shares is not None:
            await self._shares.ensure_loaded()

    async def hand_all_over(self) -> None:
        """In a cluster, have other nodes lead what this one leads, so that its stop costs its clients nothing.

        Takes up to `fencepost.shutdown.handover.ms`, and is not needed before `stop`.
        """
        if self._membership is not None:
            await self._membership.hand_all_over(within_s=self.settings.fencepost_shutdown_handover_ms / 1000)

    async def stop(self) -> None:
        """Answer requests in flight, sync all logs and mark the data directory as cleanly closed."""
        await self._cleanup.aclose()
        self._services = None
        self._servers = []

    async def crash(self) -> None:
        """End as `kill -9` ends a process: connections break without an answer, and no file is written any more.

        For nodes with their own disk and store. The caller ends the event loop, with the node's tasks on it.
        """
        assert isinstance(self._disk, LocalDisk)
        assert isinstance(self._store, SqliteMetadataStore)
        for server in self._all_servers():
            server.refuse()
        self._disk.crash()
        for _ in range(TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        for server in self._all_servers():
            server.abort()
        await self._store.crash()
        self._cleanup.pop_all()

    def _fail(self, reason: str) -> None:
        """Stop serving clients at once: later acknowledgements might be false."""
        self.failure = reason
        for server in self._all_servers():
            server.abort()
        if self.on_failed is not None:
            self.on_failed()

    def _all_servers(self) -> list[Server]:
        """Those of clients, and that of other processes of the same broker, if there is one."""
        return self._servers if self._node_server is None else [*self._servers, self._node_server]

    async def _start(self) -> None:
        settings, clock, cleanup = self.settings, self._clock, self._cleanup
        if isinstance(self._disk, LocalDisk) and self._is_disk_local:
            cleanup.push_async_callback(_close_on_thread, self._disk)
        listeners = parse_listeners(settings)
        between_brokers = inter_broker_listener(settings, listeners)
        node_sockets = self._node_sockets
        if self._placement is not None and self._peers is None:
            peers = self._channel(self._placement, None if node_sockets is not None else between_brokers)
            self._placement.on_changed.append(lambda _: peers.leave_lost())
            self._peers = peers
        bound_listeners = []
        for listener in listeners:
            bound = self._bind(listener, settings)
            cleanup.callback(bound.close)
            bound_listeners.append(bound)
        http = self._http = self._listen_to_http() if settings.fencepost_http_listener else None

        if self._is_disk_local:
            make_data_directory(self.data_directory)
        membership = self._membership
        logs = (
            LogDirectory(self.data_directory, disk=self._disk, clock=clock)
            if membership is None
            else membership.make_logs(self.data_directory, self._disk, clock)
        )
        cleanup.push_async_callback(self._store.close)
        await self._store.open()
        self.cluster_id = await self._store.cluster_id()
        broker_configs = BrokerConfigs(self._store, settings)
        broker_configs.checks.append(partial(_drain_problem, membership is None))
        await broker_configs.open()
        tls = self._encrypt(listeners)
        if http is not None:
            # From here on probes are answered; whatever fails later, they say so.
            await http.accept(None if tls is None else tls.listeners.get(HTTP_LISTENER))
        client_quotas = ClientQuotas(self._store, settings, clock)
        await client_quotas.open()
        features = Features(self._store, settings)
        await features.open()
        scram_credentials = ScramCredentials(self._store)
        await scram_credentials.open()

        advertised = bound_listeners[0].advertised
        to_nodes = bound_listeners[listeners.index(between_brokers)].advertised
        here = NodeAddress(settings.node_id, to_nodes.host, to_nodes.port)
        if membership is not None:
            advertised_at = ((bound.listener.name, bound.advertised) for bound in bound_listeners)
            endpoints = {name: (address.host, address.port) for name, address in advertised_at}
            between_nodes = between_brokers.name
            if node_sockets is not None:
                between_nodes, path, _ = node_sockets.bound.advertised
                endpoints[between_nodes] = path, NO_PORT
            await membership.join(endpoints, between_nodes=between_nodes, is_drained=lambda: settings.fencepost_drain)
            cleanup.push_async_callback(membership.leave)
        topics = Topics(
            self._store,
            logs,
            settings,
            placement=self._placement or SingleNodePlacement(here),
            arrivals=None if membership is None else membership.arrivals(self._disk),
            new_topic_id=RandomIds(self._randomness).uuid,
        )
        cleanup.push_async_callback(logs.close)
        cleanup.push_async_callback(topics.close)
        await topics.open()
        _watch_settings(settings, broker_configs, topics, logs)

        producer_ids = ProducerIds(self._store, node_id=settings.node_id)
        transactions, verifier = self._coordinate_transactions(topics, producer_ids)
        logs.has_owner = transactions.owns
        group_configs = GroupConfigs(self._store, settings)
        await group_configs.open()
        groups = GroupService(
            topics,
            settings,
            clock,
            new_member_id_suffix=RandomIds(self._randomness).text,
            group_configs=group_configs,
        )
        cleanup.push_async_callback(transactions.close)
        _watch_features(features, transactions)
        await transactions.start()
        await groups.start()
        cleanup.push_async_callback(groups.close)
        shares = self._shares = LazyShareService(topics, groups, group_configs, settings, clock, peers=self._peers)
        shares.start()
        cleanup.push_async_callback(shares.close)
        check_back = self._check_back(topics, transactions) if settings.check_back else None

        services = Services(
            settings=settings,
            clock=clock,
            topics=topics,
            transactions=transactions,
            verifier=verifier,
            groups=groups,
            share_service=shares.get,
            group_configs=group_configs,
            broker_configs=broker_configs,
            client_quotas=client_quotas,
            features=features,
            scram_credentials=scram_credentials,
            fetch_sessions=FetchSessionCache(
                settings.max_incremental_fetch_session_cache_slots,
                self._randomness,
                maximum_bytes=settings.fencepost_fetch_sessions_max_bytes,
            ),
            node_id=settings.node_id,
            host=advertised.host,
            port=advertised.port,
            cluster_id=self.cluster_id,
            leader_choices=None if membership is None else membership.leader_choices,
            loggers=self._loggers,
            check_back=None if check_back is None else check_back.core,
            commits_may_wait=membership is not None and membership.shared_log is not None,
            engine_figures=self._engine_figures,
        )
        if settings.authorizer_class_name:
            await self._authorize(services)
        else:
            _warn_of_open_listeners(settings)
        followed = None if self._placement is None else self._followed_documents(services)
        if http is not None:
            http.observe(services)
        self._services = services
        self._sweep_regularly(logs)

        loop = asyncio.get_running_loop()
        connection_quotas = ConnectionQuotas(settings, client_quotas, clock, self._descriptors)
        sendfile_sockets = SendfileSockets(self._descriptors, settings.socket_send_buffer_bytes)
        network_memory = NetworkMemory(
            request_limit_bytes=settings.queued_max_request_bytes,
            largest_request_bytes=settings.socket_request_max_bytes,
            reply_limit_bytes=settings.fencepost_queued_max_response_bytes,
        )
        cleanup.callback(network_memory.close)
        connection_quotas.settings_changed()
        broker_configs.on_changed.append(connection_quotas.settings_changed)
        cleanup.callback(connection_quotas.close)
        authentications = await self._authenticate(bound_listeners, scram_credentials)
        of_listeners = [services]
        new_dispatcher: Callable[..., RequestDispatcher] = Dispatcher
        if membership is not None and membership.is_held is not None:
            # Imported here: a broker that is alone has no lease.
            from fencepost.broker.network.leased_dispatch import LeasedDispatcher

            assert membership.shared_log is not None
            new_dispatcher = partial(LeasedDispatcher, is_held=membership.is_held, shared_log=membership.shared_log)
        for bound in bound_listeners:
            # A client gets the advertised address of the listener that it has connected to.
            address = bound.advertised
            seen = dataclasses.replace(services, host=address.host, port=address.port, listener=bound.listener.name)
            of_listeners.append(seen)
            dispatcher: RequestDispatcher = new_dispatcher(seen, loop=loop, quotas=client_quotas)
            if self._watch is not None:
                dispatcher = self._watch(dispatcher, seen, loop)
            new_server: Callable[..., Server] = Server
            if bound.listener.protocol.uses_tls:
                from fencepost.broker.network.tls_server import TlsServer

                assert tls is not None
                new_server = partial(TlsServer, tls=tls.listeners[bound.listener.name])
            server = new_server(
                bound,
                dispatcher,
                settings,
                connection_quotas,
                sendfile_sockets=sendfile_sockets,
                memory=network_memory,
                loop=loop,
                authentication=authentications.get(bound.listener.name),
            )
            self._servers.append(server)
            await server.start()
        if node_sockets is not None:
            # Imported here: most brokers have one process.
            from fencepost.broker.network.node_sockets import NodeServer

            seen = dataclasses.replace(services, listener=node_sockets.bound.listener.name)
            of_listeners.append(seen)
            self._node_server = NodeServer(
                node_sockets.bound,
                Dispatcher(seen, loop=loop),
                settings,
                connection_quotas,
                sendfile_sockets=sendfile_sockets,
                memory=network_memory,
                loop=loop,
            )
            await self._node_server.start()
        cleanup.push_async_callback(self._stop_servers)
        if http is not None:
            http.serve(services, self._servers, network_memory, {} if tls is None else tls.listeners)
        if tls is not None:
            tls.start()
            cleanup.callback(tls.close)
            broker_configs.checks.append(tls.problem_with)
            broker_configs.on_changed.append(tls.settings_changed)
            broker_configs.on_repeated.append(tls.settings_repeated)
        if followed is not None:
            followed.start()
            cleanup.push_async_callback(followed.close)
        if check_back is not None:
            check_back.start()
        if membership is not None:
            membership.keep(topics)
            cleanup.push_async_callback(membership.rest)
        cleanup.callback(_log_requests(self._loggers, of_listeners))

    def _check_back(self, topics: Topics, transactions: TransactionService) -> BrokerCheckBack:
        """Make the check-back. Raises StartError."""
        transactions.two_phase_ids = tuple(glob for one in self.settings.check_back for glob in one.ids)
        # Imported here: most brokers check nothing back.
        from fencepost.broker.check_back.service import BrokerCheckBack

        try:
            check_back = BrokerCheckBack(self.settings, topics, transactions, self._clock, peers=self._peers)
        except ValueError as error:
            raise StartError(str(error)) from None
        self._cleanup.push_async_callback(check_back.close)
        return check_back

    def _listen_to_http(self) -> HttpService:
        """Bind the HTTP listener. Raises StartError."""
        # Imported here: most brokers have no HTTP listener, and no need of its library.
        try:
            from fencepost.broker.http.service import HttpService
        except ModuleNotFoundError as error:
            raise StartError(
                f"fencepost.http.listener needs the package {error.name}: pip install 'fencepost[http]'"
            ) from None
        http = HttpService(self.settings, lambda: self.failure)
        self._cleanup.callback(http.close)
        return http

    def _channel(self, placement: Placement, listener: Listener | None) -> TcpPeers:
        """The channel to other nodes, protected as their listener between nodes is; None: over their node sockets.

        Raises StartError.
        """
        node_id = self.settings.node_id
        if listener is None or listener.protocol is SecurityProtocol.PLAINTEXT:
            return TcpPeers(node_id, placement.address, connect=self._connect)
        # Imported here: a broker without TLS and SASL needs none of it.
        from fencepost.broker.network.peer_security import peer_security

        connect, log_in = peer_security(self.settings, listener)
        return TcpPeers(node_id, placement.address, connect=connect or self._connect, log_in=log_in)

    def _encrypt(self, listeners: Sequence[Listener]) -> BrokerTls | None:
        """Make the TLS of the listeners that have it; None without one. Raises StartError."""
        http = None if self._http is None else parse_http_listener(self.settings)
        all_listeners = listeners if http is None else [*listeners, http]
        names = [listener.name for listener in all_listeners if listener.protocol.uses_tls]
        if not names:
            return None
        # Imported here, as OpenSSL takes memory.
        from fencepost.broker.security.tls import BrokerTls
        from fencepost.broker.security.tls_contexts import TlsError

        try:
            self._tls = BrokerTls(self.settings, names)
        except TlsError as error:
            raise StartError(str(error)) from None
        return self._tls

    def reload_certificates(self) -> None:
        """Read the keys and certificates of all listeners again; those in force stay if that fails."""
        if self._tls is not None:
            self._tls.renew("SIGHUP")

    async def _authenticate(
        self, bound_listeners: Sequence[BoundListener], scram_credentials: ScramCredentials
    ) -> Mapping[str, ListenerAuthentication]:
        """Open what the SASL listeners need; return the authentication of each by its name. Raises StartError."""
        protected = [bound.listener for bound in bound_listeners if bound.listener.protocol.uses_sasl]
        if not protected:
            return {}
        # Imported here: a broker without SASL needs none of it.
        from fencepost.broker.network.sasl_listener import SaslListeners

        loop = asyncio.get_running_loop()
        listeners = SaslListeners(self.settings, self._store, scram_credentials, self._clock, loop)
        self._cleanup.push_async_callback(listeners.close)
        return {listener.name: await listeners.open(listener) for listener in protected}

    async def _authorize(self, services: Services) -> None:
        """Put the stored ACLs in force: from the first request on, clients need rights."""
        # Imported here: a broker without an authorizer needs none of it.
        from fencepost.broker.requests.needed_rights import NEEDED_RIGHTS
        from fencepost.broker.requests.rights_gate import RightsGate
        from fencepost.broker.security.acl_store import Acls
        from fencepost.broker.security.audit import Audit
        from fencepost.broker.security.authorizer import Authorizer
        from fencepost.broker.security.principal import NODE, principal_problem

        settings = self.settings
        super_users = [name.strip() for name in settings.super_users.split(";") if name.strip()]
        for problem in filter(None, map(principal_problem, super_users)):
            raise StartError(f"super.users: {problem}; write User:name, and semicolons between several")
        authorizer = Authorizer(
            super_users=[*super_users, NODE], allows_without_rules=settings.allow_everyone_if_no_acl_found
        )
        acls = services.acls = Acls(self._store, authorizer)
        await acls.open()
        if not (super_users or authorizer.allows_without_rules or acls.matching(lambda _: True)):
            log.warning(
                "nobody_has_rights",
                hint="there is no ACL, and nobody may add one: name super.users, or start with "
                "allow.everyone.if.no.acl.found=true, and add the ACLs",
            )
        services.gate = RightsGate(authorizer, Audit(self._clock, self._loggers), NEEDED_RIGHTS)
        open_listeners = [
            listener.name for listener in parse_listeners(settings) if listener.protocol is SecurityProtocol.PLAINTEXT
        ]
        if open_listeners:
            log.warning(
                "clients_are_not_authenticated",
                listeners=open_listeners,
                hint="the principal of all of them is User:ANONYMOUS; ACLs and super.users can tell them apart by host "
                "only",
            )

    def _coordinate_transactions(
        self, topics: Topics, producer_ids: ProducerIds
    ) -> tuple[TransactionService, TransactionVerifier]:
        """Make the transaction coordinator and the verifier; in a cluster, both send requests to other nodes.

        The senders of these requests are closed after the coordinator.
        """
        settings, clock, peers = self.settings, self._clock, self._peers
        if peers is None:
            transactions = TransactionService(topics, producer_ids, settings, clock)
            return transactions, TransactionVerifier(transactions)
        timeout_ms = settings.request_timeout_ms
        markers = RemoteMarkerChannel(topics, peers, clock, request_timeout_ms=timeout_ms)
        transactions = TransactionService(topics, producer_ids, settings, clock, markers=markers)
        verifier = RemoteTransactionVerifier(transactions, topics, peers, request_timeout_ms=timeout_ms)
        self._cleanup.push_async_callback(peers.close)
        self._cleanup.push_async_callback(markers.close)
        self._cleanup.push_async_callback(verifier.close)
        return transactions, verifier

    def _followed_documents(self, services: Services) -> FollowedDocuments:
        """What puts in force what other nodes change, for as long as clients are served."""
        # Imported here: a single node has nobody to follow.
        from fencepost.broker.hosting.confirmations import Confirmations
        from fencepost.broker.metadata.followed_documents import FollowedDocuments

        documents = [
            services.broker_configs.open,
            services.features.open,
            services.client_quotas.open,
            services.scram_credentials.open,
            services.group_configs.open,
        ]
        if services.acls is not None:
            documents.insert(0, services.acls.open)  # first, as rights may have been revoked
        followed = FollowedDocuments(self._store, documents)
        if self._peers is not None:
            bound_s = self.settings.fencepost_cluster_lease_ms / 1000
            services.confirmations = Confirmations(followed, services.topics, self._peers, bound_s=bound_s)
        return followed

    async def _stop_servers(self) -> None:
        drain_s = self.settings.fencepost_shutdown_drain_ms / 1000
        stopping = asyncio.gather(*(server.stop(drain_s) for server in self._all_servers()))
        await asyncio.sleep(0)  # from here on no request is read
        self.services.groups.refuse_parked()  # a rebalance may take longer than the drain time
        await stopping

    def _sweep_regularly(self, logs: LogDirectory) -> None:
        """Start the timer of the sweeps: retention, rolling by time and expiry of producers.

        A sweep covers a share of the logs and of the deleted files, so sweeps run more often than
        `log.retention.check.interval.ms`; all logs are covered within that time, and within a minute. Retention and
        rolling still wait for the interval, counted for each log from its creation, opening or last check.
        """
        loop = asyncio.get_running_loop()
        retention_interval_ms = self.settings.log_retention_check_interval_ms
        round_s = min(retention_interval_ms / 1000, LONGEST_SWEEP_ROUND_S)
        interval_s = min(round_s, LONGEST_SWEEP_INTERVAL_S)
        sweeps_per_round = int(round_s / interval_s)
        timer: asyncio.TimerHandle

        def sweep() -> None:
            nonlocal timer
            timer = loop.call_later(interval_s, swept)  # first, so that the sweeps go on if this one fails
            try:
                logs.sweep(
                    self._clock.now_ms(),
                    sweeps_per_round=sweeps_per_round,
                    retention_interval_ms=retention_interval_ms,
                )
            except StorageError as error:
                log.error("sweep_failed", reason=str(error))  # noqa: TRY400  # the reason says it all

        swept = SWEEP_TIMER.callback(sweep)
        timer = loop.call_later(interval_s, swept)
        self._cleanup.callback(lambda: timer.cancel())


def _warn_of_open_listeners(settings: Settings) -> None:
    """Warn of listeners on all interfaces whose clients need neither a name nor rights."""
    open_listeners = [
        listener.name
        for listener in parse_listeners(settings)
        if listener.host in ALL_INTERFACES
        and not listener.protocol.uses_sasl
        and (not listener.protocol.uses_tls or settings.for_listener("ssl.client.auth", listener.name) != "required")
    ]
    if open_listeners:
        log.warning(
            "listeners_are_open_to_everybody",
            listeners=open_listeners,
            hint="on all interfaces, without a log-in and without an authorizer; docs/security.md shows how to protect "
            "them, unless the network does",
        )


async def _drain_problem(is_alone: bool, configs: Mapping[str, str], of_this_broker: bool) -> str | None:
    if configs.get("fencepost.drain", "false").lower() != "true":
        return None
    if is_alone:
        return "fencepost.drain: this broker is the only one, and nobody could lead what it hands over"
    if not of_this_broker:
        return "fencepost.drain: all brokers cannot hand over what they lead; name one of them"
    return None


def _watch_settings(settings: Settings, broker_configs: BrokerConfigs, topics: Topics, logs: LogDirectory) -> None:
    """Notify the parts that keep values of settings when these change."""

    def changed() -> None:
        logs.cleaner_backoff_ms = settings.log_cleaner_backoff_ms if settings.log_cleaner_enable else None
        topics.settings_changed()

    changed()
    broker_configs.on_changed.append(changed)


def _log_requests(loggers: Loggers, of_listeners: Sequence[Services]) -> Callable[[], None]:
    """Log requests while the level of their logger asks for it; return a function that ends that."""
    request_log = RequestLog()

    def changed() -> None:
        wanted = request_log if is_switched_on(loggers) else None
        for services in of_listeners:
            if services.observer is None or services.observer is request_log:
                services.observer = wanted
            else:
                services.observer.then = wanted

    changed()
    loggers.on_changed.append(changed)
    return partial(loggers.on_changed.remove, changed)


def _watch_features(features: Features, transactions: TransactionService) -> None:
    def changed() -> None:
        transactions.set_transaction_version(features.level(TRANSACTION_VERSION))

    changed()
    features.on_changed.append(changed)


def sqlite_store(data_directory: str, disk: Disk) -> SqliteMetadataStore:
    """The metadata store in a data directory. It is not founded beside partitions that it would not know."""
    path = os.path.join(data_directory, FILE_NAME)

    def require_no_partitions() -> None:
        found = partition_directories(disk.list(data_directory))
        if found:
            raise StorageError(
                f"{path} is missing or empty, but {data_directory} holds {len(found)} partitions, such as {found[0]}: "
                "it says which topics they belong to. Restore it from a backup; without one, start with another data "
                "directory and keep this one"
            )

    return SqliteMetadataStore(
        path, before_founding=require_no_partitions, on_restoring={BLOCK_KEY: above_reserved_blocks}
    )


async def _close_on_thread(disk: LocalDisk) -> None:
    """Close a disk on a thread, so that the event loop does not wait for its last syncs."""
    with ThreadPoolExecutor(1, thread_name_prefix="disk-close") as executor:
        await asyncio.get_running_loop().run_in_executor(executor, disk.close)


def _close_to_others(path: str) -> None:
    """Take the rights of others on a data directory away. Raises OSError."""
    mode = os.stat(path).st_mode
    found = os.listdir(path) if mode & OF_OTHERS and os.access(path, os.R_OK) else None
    if found is None or (found and FILE_NAME not in found):
        return  # what else is there may be for others
    try:
        os.chmod(path, OWNER_ONLY)
    except PermissionError:
        log.warning(
            "data_directory_is_open_to_others", path=path, mode=f"{mode & 0o7777:o}", remedy=f"chmod 700 {path}"
        )
    else:
        log.info("data_directory_closed_to_others", path=path, mode_before=f"{mode & 0o7777:o}")


def make_data_directory(path: str) -> None:
    """Create the data directory with its parents, for its owner alone, and check that it is writable.

    One that exists is closed to others if it is empty or a broker has used it before. Raises StartError.
    """
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        try:
            os.mkdir(path, OWNER_ONLY)
        except FileExistsError:
            os.makedirs(path, exist_ok=True)  # refuses what is no directory
            _close_to_others(path)
    except OSError as error:
        raise StartError(f"cannot create the data directory {path}: {error.strerror}; {remedy(error)}") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise StartError(f"cannot write to the data directory {path}: check its owner and permissions")
