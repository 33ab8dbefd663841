"""The listeners of a node: bound first, before anything else is done, and served last."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from fencepost.broker.config import Listener, Settings
from fencepost.broker.config.listeners import parse_http_listener
from fencepost.broker.hosting.broker_configs import BrokerConfigs
from fencepost.broker.hosting.membership import Engine
from fencepost.broker.network.connection import RequestDispatcher
from fencepost.broker.network.dispatch import Dispatcher
from fencepost.broker.network.network_memory import NetworkMemory
from fencepost.broker.network.server import BoundListener, Server, StartError
from fencepost.broker.network.socket_sender import SendfileSockets
from fencepost.broker.node.documents import Documents
from fencepost.broker.node.foundation import Foundation
from fencepost.broker.quotas.client_quotas import ClientQuotas
from fencepost.broker.quotas.connections import ConnectionQuotas
from fencepost.broker.requests.api import Services

if TYPE_CHECKING:
    from fencepost.broker.http.service import HttpService
    from fencepost.broker.network.authentication import ListenerAuthentication
    from fencepost.broker.network.node_sockets import NodeSockets
    from fencepost.broker.security.tls import BrokerTls

Watch = Callable[[RequestDispatcher, Services, asyncio.AbstractEventLoop], RequestDispatcher]
"""Makes the dispatcher that connections use from the broker's own."""


def bind_listeners(
    base: Foundation, listeners: Sequence[Listener], bind: Callable[[Listener, Settings], BoundListener]
) -> list[BoundListener]:
    """Bind the addresses of the listeners. Raises StartError."""
    found = []
    for listener in listeners:
        bound = bind(listener, base.settings)
        base.cleanup.callback(bound.close)
        found.append(bound)
    return found


def listen_to_http(base: Foundation, failure: Callable[[], str | None]) -> HttpService | None:
    """Bind the HTTP listener, if there is one. failure: why the node stopped, for probes. Raises StartError."""
    if not base.settings.fencepost_http_listener:
        return None
    # Imported here: most brokers have no HTTP listener, and no need of its library.
    try:
        from fencepost.broker.http.service import HttpService
    except ModuleNotFoundError as error:
        raise StartError(
            f"fencepost.http.listener needs the package {error.name}: pip install 'fencepost[http]'"
        ) from None
    http = HttpService(base.settings, failure)
    base.cleanup.callback(http.close)
    return http


def encrypt(settings: Settings, listeners: Sequence[Listener]) -> BrokerTls | None:
    """Make the TLS of the listeners that have it, the HTTP listener among them; None without one. Raises StartError."""
    http = parse_http_listener(settings) if settings.fencepost_http_listener else None
    all_listeners = listeners if http is None else [*listeners, http]
    names = [listener.name for listener in all_listeners if listener.protocol.uses_tls]
    if not names:
        return None
    # Imported here, as OpenSSL takes memory.
    from fencepost.broker.security.tls import BrokerTls
    from fencepost.broker.security.tls_contexts import TlsError

    try:
        return BrokerTls(settings, names)
    except TlsError as error:
        raise StartError(str(error)) from None


def renew_certificates(base: Foundation, tls: BrokerTls, broker_configs: BrokerConfigs) -> None:
    """Follow changes of the files and settings of TLS, while clients are served."""
    tls.start()
    base.cleanup.callback(tls.close)
    broker_configs.checks.append(tls.problem_with)
    broker_configs.on_changed.append(tls.settings_changed)
    broker_configs.on_repeated.append(tls.settings_repeated)


@dataclass(frozen=True)
class Network:
    """Resources that the servers of all listeners share. authentications: those of the SASL listeners, by name."""

    client_quotas: ClientQuotas
    connection_quotas: ConnectionQuotas
    sendfile_sockets: SendfileSockets
    memory: NetworkMemory
    authentications: Mapping[str, ListenerAuthentication]
    tls: BrokerTls | None


async def open_network(
    base: Foundation,
    documents: Documents,
    broker_configs: BrokerConfigs,
    listeners: Sequence[Listener],
    tls: BrokerTls | None,
) -> Network:
    """Raises StartError."""
    settings = base.settings
    connection_quotas = ConnectionQuotas(settings, documents.client_quotas, base.clock, base.descriptors)
    sendfile_sockets = SendfileSockets(base.descriptors, settings.socket_send_buffer_bytes)
    memory = NetworkMemory(
        request_limit_bytes=settings.queued_max_request_bytes,
        largest_request_bytes=settings.socket_request_max_bytes,
        reply_limit_bytes=settings.fencepost_queued_max_response_bytes,
    )
    base.cleanup.callback(memory.close)
    connection_quotas.settings_changed()
    broker_configs.on_changed.append(connection_quotas.settings_changed)
    base.cleanup.callback(connection_quotas.close)
    authentications = await _authenticate(base, listeners, documents)
    return Network(documents.client_quotas, connection_quotas, sendfile_sockets, memory, authentications, tls)


async def _authenticate(
    base: Foundation, listeners: Sequence[Listener], documents: Documents
) -> Mapping[str, ListenerAuthentication]:
    """Open the SASL listeners' mechanisms; return the authentication of each by its name. Raises StartError."""
    protected = [listener for listener in listeners if listener.protocol.uses_sasl]
    if not protected:
        return {}
    # Imported here: a broker without SASL needs none of it.
    from fencepost.broker.network.sasl_listener import SaslListeners

    loop = asyncio.get_running_loop()
    users, tokens = documents.scram_credentials, documents.delegation_tokens
    opened = SaslListeners(base.settings, base.store, users, tokens, base.clock, loop)
    base.cleanup.push_async_callback(opened.close)
    return {listener.name: await opened.open(listener) for listener in protected}


@dataclass
class Servers:
    """The servers of a node that have started, or are about to.

    of_clients: one for each listener, in the order of `listeners`. of_nodes: for other processes of the same broker.
    """

    of_clients: list[Server] = field(default_factory=list)
    of_nodes: Server | None = None

    def __iter__(self) -> Iterator[Server]:
        yield from self.of_clients
        if self.of_nodes is not None:
            yield self.of_nodes


@dataclass(frozen=True)
class Serving:
    """Makes the servers of a node's listeners. engine: see `NodeLogs`. watch: see `Node`."""

    base: Foundation
    network: Network
    services: Services
    engine: Engine | None
    watch: Watch | None

    async def start(
        self, servers: Servers, bound_listeners: Sequence[BoundListener], node_sockets: NodeSockets | None
    ) -> list[Services]:
        """Start the server of each listener. Returns the services as the clients of each listener see them."""
        of_listeners = [self.services]
        for bound in bound_listeners:
            # A client gets the advertised address of the listener that it has connected to.
            advertised = bound.advertised._replace(name=bound.listener.name)
            seen = dataclasses.replace(self.services, listener=advertised)
            of_listeners.append(seen)
            server = self.server_for(bound, self._dispatcher_for(seen))
            servers.of_clients.append(server)
            await server.start()
        if node_sockets is not None:
            name = node_sockets.bound.listener.name
            seen = dataclasses.replace(self.services, listener=self.services.listener._replace(name=name))
            of_listeners.append(seen)
            own = Dispatcher(seen, loop=asyncio.get_running_loop())
            servers.of_nodes = self.server_for(node_sockets.bound, own, is_of_nodes=True)
            await servers.of_nodes.start()
        self.base.cleanup.push_async_callback(self._stop, servers)
        return of_listeners

    def server_for(self, bound: BoundListener, dispatcher: RequestDispatcher, *, is_of_nodes: bool = False) -> Server:
        """Make the server of a listener. is_of_nodes: whether other processes of this broker connect to it."""
        network, name = self.network, bound.listener.name
        new_server: Callable[..., Server] = Server
        if is_of_nodes:
            # Imported here: most brokers have one process.
            from fencepost.broker.network.node_sockets import NodeServer

            new_server = NodeServer
        elif bound.listener.protocol.uses_tls:
            # Imported here, as OpenSSL takes memory.
            from fencepost.broker.network.tls_server import TlsServer

            assert network.tls is not None
            new_server = partial(TlsServer, tls=network.tls.listeners[name])
        return new_server(
            bound,
            dispatcher,
            self.base.settings,
            network.connection_quotas,
            sendfile_sockets=network.sendfile_sockets,
            memory=network.memory,
            loop=asyncio.get_running_loop(),
            authentication=network.authentications.get(name),
        )

    def _dispatcher_for(self, seen: Services) -> RequestDispatcher:
        loop, engine = asyncio.get_running_loop(), self.engine
        lease_gate = room_after = None
        if engine is not None:
            # Imported here: a broker that is alone has no lease.
            from fencepost.broker.network.lease_gate import LeaseGate

            lease_gate, room_after = LeaseGate(engine.is_held), engine.shared_log.room_after
        dispatcher = Dispatcher(
            seen, loop=loop, quotas=self.network.client_quotas, lease_gate=lease_gate, room_after=room_after
        )
        return dispatcher if self.watch is None else self.watch(dispatcher, seen, loop)

    async def _stop(self, servers: Servers) -> None:
        drain_s = self.base.settings.fencepost_shutdown_drain_ms / 1000
        stopping = asyncio.gather(*(server.stop(drain_s) for server in servers))
        await asyncio.sleep(0)  # from here on no request is read
        self.services.groups.refuse_parked()  # a rebalance may take longer than the drain time
        await stopping
