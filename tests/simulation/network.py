"""A network in memory: connections between processes, with latencies, losses, cuts, partitions and late repeats.

A connection is like TCP: bytes arrive in order or not at all, and after a cut nothing more arrives; what is lost breaks
its connection. What TCP cannot rule out is a request that was sent on a connection that broke and is executed much
later, while its sender has already sent it again elsewhere: `repeat_probability` makes the network keep requests and
deliver them once more, later and out of order, on their own connections whose replies nobody reads.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from fencepost.broker.config import Endpoint, Listener, Settings
from tests.simulation.loop import current_process

READ_BYTES = 64 * 1024
FIRST_CLIENT_PORT = 50_000


class SimulatedNetwork:
    """All hosts and what connects them.

    latency_s:          of each chunk of bytes, chosen evenly between the two.
    latency_between_s:  of a pair of hosts, where theirs is another.
    loss_probability:   that a chunk, which is one request or one reply or a few, never arrives. Only between hosts in
                        `losing`.
    repeat_probability: that a chunk, which is one request or a few, is delivered a second time up to `latest_repeat_s`
                        later. Only between hosts in `repeating`: pairs of (from, to).
    on_sent, on_arrived: called with a connection, and what its opener has sent on it, or what has arrived
                        there. on_repeated: with what is delivered once more.
    on_answered:        called with a connection and what the other side sends on it.
    """

    def __init__(self, chance: random.Random) -> None:
        self.latency_s = (0.00005, 0.001)
        self.latency_between_s: dict[frozenset[str], float] = {}
        self.loss_probability = 0.0
        self.losing: set[frozenset[str]] = set()
        self.repeat_probability = 0.0
        self.latest_repeat_s = 5.0
        self.repeating: set[tuple[str, str]] = set()
        self.on_sent: list[Callable[[_Connection, bytes], None]] = []
        self.on_answered: list[Callable[[_Connection, bytes], None]] = []
        self.on_arrived: list[Callable[[_Connection, bytes], None]] = []
        self.on_repeated: list[Callable[[_Connection, bytes], None]] = []
        self._chance = chance
        self._listeners: dict[tuple[str, int], SimulatedListener] = {}
        self._pipes: dict[_Connection, None] = {}
        self._apart: set[frozenset[str]] = set()
        self._neighbours: dict[str, frozenset[str]] = {}
        self._next_port = FIRST_CLIENT_PORT

    # Faults

    def separate(self, host: str, other: str) -> None:
        """Nothing passes between two hosts: connections between them break, new ones are refused."""
        self._apart.add(frozenset((host, other)))
        for connection in list(self._pipes):
            if connection.hosts == frozenset((host, other)):
                connection.cut()

    def join(self, host: str, other: str) -> None:
        self._apart.discard(frozenset((host, other)))

    def isolate(self, host: str, neighbours: Collection[str]) -> None:
        """Nobody but its neighbours reaches a host, and it nobody else."""
        self._neighbours[host] = frozenset(neighbours)
        for connection in list(self._pipes):
            if self.are_separate(*connection.route):
                connection.cut()

    def open_up(self, host: str) -> None:
        """Everybody reaches it again."""
        self._neighbours.pop(host, None)

    def cut(self, host: str, other: str) -> None:
        """Break the connections between two hosts; new ones are possible at once."""
        for connection in list(self._pipes):
            if connection.hosts == frozenset((host, other)):
                connection.cut()

    # Connecting

    def bind(self, host: str) -> Callable[[Listener, Settings], SimulatedListener]:
        """For `Node(bind=...)`: listeners on a host of this network."""
        return lambda listener, settings: SimulatedListener(self, host, listener)

    def connector(self, source_host: str) -> Callable[..., Any]:
        """What `loop.create_connection` is to a process on `source_host`: (protocol factory, host, port)."""

        async def connect(
            new_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
        ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
            await asyncio.sleep(self.latency(frozenset((source_host, host))))
            listener = self._listeners.get((host, port))
            if listener is None or listener.accepting is None or self.are_separate(source_host, host):
                raise ConnectionRefusedError(f"nothing listens at {host}:{port}")
            self._next_port += 1
            connection = _Connection(self, source_host, host)
            self._pipes[connection] = None
            protocol = new_protocol()
            client = connection.end(0, protocol, (source_host, self._next_port))
            listener.accept_connection(connection, client.own_name)
            protocol.connection_made(client)
            return client, protocol

        return connect

    def are_separate(self, host: str, other: str) -> bool:
        return (
            frozenset((host, other)) in self._apart
            or other not in self._neighbours.get(host, (other,))
            or host not in self._neighbours.get(other, (host,))
        )

    def latency(self, hosts: frozenset[str]) -> float:
        usual_s = self._chance.uniform(*self.latency_s)
        return self.latency_between_s.get(hosts, usual_s)

    def flip(self) -> bool:
        return self._chance.random() < 0.5

    def is_lost(self, connection: _Connection) -> bool:
        """Whether what is sent now never arrives."""
        return connection.hosts in self.losing and self._chance.random() < self.loss_probability

    # For connections

    def listen(self, listener: SimulatedListener) -> None:
        self._listeners[listener.host, listener.port] = listener

    def forget(self, connection: _Connection) -> None:
        self._pipes.pop(connection, None)

    def perhaps_repeat(self, connection: _Connection, content: bytes) -> None:
        """Deliver a request once more, later."""
        if connection.route not in self.repeating or self._chance.random() >= self.repeat_probability:
            return
        target = connection.listener
        if target is None:
            return

        def deliver() -> None:
            if target.accepting is None:
                return
            late = _Connection(self, *connection.route)
            self._pipes[late] = None
            for observe in self.on_repeated:
                observe(late, content)
            late.end(0, asyncio.Protocol(), (connection.route[0], 0))
            target.accept_connection(late, (connection.route[0], 0))
            late.ends[0].write(content)

        _outside(asyncio.get_running_loop().call_later, self._chance.uniform(0, self.latest_repeat_s), deliver)


def _outside(call: Callable[..., Any], *args: Any) -> Any:
    """Schedule what the network does itself: it belongs to no process, and goes on when the sender is dead."""

    return contextvars.Context().run(call, *args)


class SimulatedListener:
    """A `BoundListener` on a host of the network."""

    def __init__(self, network: SimulatedNetwork, host: str, listener: Listener) -> None:
        self._network = network
        self._listener = listener
        self.host = host
        self.port = listener.port
        self.accepting: Callable[[], asyncio.BufferedProtocol] | None = None
        self._process = current_process()
        if self._process is not None:
            self._process.at_death(self.close)

    @property
    def listener(self) -> Listener:
        return self._listener

    @property
    def address(self) -> Endpoint:
        return Endpoint(self._listener.name, self.host, self.port)

    @property
    def advertised(self) -> Endpoint:
        return self.address

    async def accept(
        self, new_connection: Callable[[], asyncio.BufferedProtocol], *, backlog: int
    ) -> SimulatedListener:
        self.accepting = new_connection
        self._network.listen(self)
        return self

    def accept_connection(self, connection: _Connection, peer_name: tuple[str, int]) -> None:
        """Make the broker's end of a connection, in the broker's process."""
        assert self.accepting is not None
        connection.listener = self
        new_protocol = self.accepting

        def make() -> None:
            protocol = new_protocol()
            connection.end(1, protocol, (self.host, self.port), peer_name).made()

        if self._process is None:
            make()
        else:
            with self._process.running():
                make()

    def close(self) -> None:
        self.accepting = None


class _Connection:
    """Both ends of a connection and the bytes between them."""

    def __init__(self, network: SimulatedNetwork, source_host: str, target_host: str) -> None:
        self.network = network
        self.route = (source_host, target_host)
        self.hosts = frozenset(self.route)
        self.listener: SimulatedListener | None = None
        self.ends: dict[int, SimulatedTransport] = {}

    def end(
        self,
        side: int,
        protocol: asyncio.BaseProtocol,
        own_name: tuple[str, int],
        peer_name: tuple[str, int] | None = None,
    ) -> SimulatedTransport:
        transport = SimulatedTransport(self, side, protocol, own_name, peer_name)
        self.ends[side] = transport
        process = current_process()
        if process is not None:
            process.at_death(lambda: self._owner_died(transport))
        return transport

    def _owner_died(self, transport: SimulatedTransport) -> None:
        """What a dead process has written may still arrive, or not."""
        if self.network.flip():
            self.cut()
        else:
            transport.finish()

    def cut(self) -> None:
        """Break it: what has not arrived never does, and both sides learn of it."""
        self.network.forget(self)
        for transport in self.ends.values():
            transport.break_off(ConnectionResetError("the connection was cut"))


class SimulatedTransport(asyncio.Transport):
    """One end of a connection: what it writes arrives at the other end after a while."""

    def __init__(
        self,
        connection: _Connection,
        side: int,
        protocol: asyncio.BaseProtocol,
        own_name: tuple[str, int],
        peer_name: tuple[str, int] | None,
    ) -> None:
        super().__init__()
        self.own_name = own_name
        self._peer_name = peer_name
        self._connection = connection
        self._side = side
        self._protocol = protocol
        self._process = current_process()
        self._loop = asyncio.get_running_loop()
        self._is_closing = False
        self._is_lost = False
        self._is_paused = False
        self._arrived: list[bytes] = []
        self._has_eof = False
        self._arrival_s = 0.0
        self._on_the_way: deque[Callable[[SimulatedTransport], None]] = deque()

    def made(self) -> None:
        """Tell the protocol that it is connected."""
        self._in_process(lambda: self._protocol.connection_made(self))

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines([data])

    def writelines(self, chunks: Any) -> None:
        if self._is_closing or self._is_lost or self._is_dead():
            return
        content = b"".join(chunks)
        network = self._connection.network
        if self._side == 0:
            for observe in network.on_sent:
                observe(self._connection, content)
        else:
            for observe in network.on_answered:
                observe(self._connection, content)
        if network.is_lost(self._connection):
            self._deliver_later(lambda other: self._connection.cut())
            return
        self._deliver_later(lambda other: other.arrive(content))
        if self._side == 0:
            network.perhaps_repeat(self._connection, content)

    def _deliver_later(self, deliver: Callable[[SimulatedTransport], None]) -> None:
        """After a latency, and behind what was sent before."""
        self._arrival_s = max(
            self._arrival_s, self._loop.time() + self._connection.network.latency(self._connection.hosts)
        )
        self._on_the_way.append(deliver)
        _outside(self._loop.call_at, self._arrival_s, self._arrive_next)

    def _arrive_next(self) -> None:
        # Not bound to its own timer: of two that are due at the same moment, either may come first.
        deliver = self._on_the_way.popleft()
        other = self._connection.ends.get(1 - self._side)
        if other is not None:
            deliver(other)

    # Reading

    def arrive(self, content: bytes) -> None:
        if self._is_lost or self._is_dead():
            return
        if self._side == 0:
            for observe in self._connection.network.on_arrived:
                observe(self._connection, content)
        self._arrived.append(content)
        self._hand_over()

    def arrive_eof(self) -> None:
        if not self._is_lost and not self._is_dead():
            self._has_eof = True
            self._hand_over()

    def _hand_over(self) -> None:
        self._in_process(self._hand_over_here)

    def _hand_over_here(self) -> None:
        while self._arrived and not self._is_paused and not self._is_lost:
            content = self._arrived.pop(0)
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self._protocol.get_buffer(READ_BYTES))
                taken_bytes = min(len(buffer), len(content))
                buffer[:taken_bytes] = content[:taken_bytes]
                if taken_bytes < len(content):
                    self._arrived.insert(0, content[taken_bytes:])
                self._protocol.buffer_updated(taken_bytes)
            elif isinstance(self._protocol, asyncio.Protocol):
                self._protocol.data_received(content)
        if self._has_eof and not self._arrived and not self._is_lost:
            self.break_off(None)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._loop.call_soon(self._hand_over)

    # Ending

    def close(self) -> None:
        """What was written arrives; then both ends are closed."""
        if not self._is_closing:
            self.finish()
            self.break_off(None)

    def finish(self) -> None:
        """The other end learns that nothing more comes, behind what was written."""
        if not self._is_lost:
            self._is_closing = True
            self._deliver_later(lambda other: other.arrive_eof())
            self._connection.network.forget(self._connection)

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._connection.cut()

    def break_off(self, error: Exception | None) -> None:
        """The connection is over for this end; its protocol is notified in a separate turn."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        if not self._is_dead():
            self._in_process(lambda: self._loop.call_soon(self._protocol.connection_lost, error))

    def is_closing(self) -> bool:
        return self._is_closing

    # What protocols ask

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self._peer_name
        return self.own_name if name == "sockname" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The network takes everything at once."""

    def get_write_buffer_size(self) -> int:
        return 0

    def _is_dead(self) -> bool:
        return self._process is not None and self._process.is_dead

    def _in_process(self, work: Callable[[], object]) -> None:
        """Run what the owner of this end does, in its process, once that is not paused."""
        if self._process is None:
            _outside(work)  # not in the process that may be dying here
        elif self._process.is_paused:
            self._process.hold(lambda: self._in_process(work))
        elif not self._process.is_dead:
            with self._process.running():
                work()
