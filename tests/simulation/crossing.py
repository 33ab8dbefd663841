"""What brokers send to one another, taken from the wire: it stands in the trace beside what clients send.

Late repeats are reported as events: no client reads their replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from fencepost.protocol.framing import find_frame
from fencepost.protocol.headers import (
    read_request_header,
    read_request_start,
    read_response_header,
    request_header_version,
    response_header_version,
)
from fencepost.protocol.messages import REQUESTS, RESPONSES
from fencepost.protocol.schema import decode
from tests.simulation.trace import Exchange, brief

if TYPE_CHECKING:
    from tests.simulation.network import _Connection
    from tests.simulation.world import World

MAXIMUM_FRAME_BYTES: Final = 100_000_000


class Crossings:
    """Follows a world from before its first broker starts.

    on_sent:     called with each request, before the network decides how long it takes.
    on_repeated: called with the request that the network delivers once more.
    """

    def __init__(self, world: World) -> None:
        self.on_sent: list[Callable[[Exchange], None]] = []
        self.on_repeated: list[Callable[[Any], None]] = []
        self._world = world
        self._under_way: dict[_Connection, dict[int, Exchange]] = {}
        self._arrived: dict[_Connection, bytearray] = {}
        world.network.on_sent.append(self._sent)
        world.network.on_arrived.append(self._has_arrived)
        world.network.on_repeated.append(self._repeated)

    def _sent(self, connection: _Connection, content: bytes) -> None:
        nodes = {broker.host: broker.node_id for broker in self._world.brokers.values()}
        source, target = connection.route
        if source not in nodes:
            return
        for correlation_id, request, version in _requests(content):
            exchange = self._world.trace.sent(source, nodes[target], request, version)
            self._under_way.setdefault(connection, {})[correlation_id] = exchange
            for observe in list(self.on_sent):
                observe(exchange)

    def _has_arrived(self, connection: _Connection, content: bytes) -> None:
        under_way = self._under_way.get(connection)
        if under_way is None:
            return
        arrived = self._arrived.setdefault(connection, bytearray())
        arrived += content
        while (frame := find_frame(arrived, 0, len(arrived), MAXIMUM_FRAME_BYTES)) is not None:
            reply = bytes(arrived[frame[0] : frame[1]])
            del arrived[: frame[1]]
            exchange = under_way.pop(int.from_bytes(reply[:4], "big"))
            api_key: int = exchange.request.api_key
            _, position = read_response_header(reply, response_header_version(api_key, exchange.version))
            response = decode(RESPONSES[api_key], reply, exchange.version, position)
            exchange.answered(response, self._world.loop.time())

    def _repeated(self, connection: _Connection, content: bytes) -> None:
        source, target = connection.route
        for _, request, _ in _requests(content):
            self._world.trace.happened(f"{target} gets once more what {source} has sent: {brief(request)}")
            for observe in self.on_repeated:
                observe(request)


def follow_replies(world: World, replied: Callable[[int, int], None]) -> None:
    """Call with the node and the API of each answer that leaves a broker, whether or not it arrives."""
    nodes = {broker.host: broker.node_id for broker in world.brokers.values()}
    under_way: dict[_Connection, dict[int, int]] = {}
    answers: dict[_Connection, bytearray] = {}

    def sent(connection: _Connection, content: bytes) -> None:
        position = 0
        while (frame := find_frame(content, position, len(content), MAXIMUM_FRAME_BYTES)) is not None:
            start, position = frame
            api_key, _, correlation_id = read_request_start(content[start:position])
            under_way.setdefault(connection, {})[correlation_id] = api_key

    def answered(connection: _Connection, content: bytes) -> None:
        asked = under_way.get(connection, {})
        sending = answers.setdefault(connection, bytearray())
        sending += content
        while (frame := find_frame(sending, 0, len(sending), MAXIMUM_FRAME_BYTES)) is not None:
            start, end = frame
            api_key = asked.pop(int.from_bytes(sending[start : start + 4], "big"), None)
            del sending[:end]
            if api_key is not None:
                replied(nodes[connection.route[1]], api_key)

    world.network.on_sent.append(sent)
    world.network.on_answered.append(answered)


def _requests(content: bytes) -> Iterator[tuple[int, Any, int]]:
    """The whole requests in what was sent at once: correlation id, message and version."""
    position = 0
    while (frame := find_frame(content, position, len(content), MAXIMUM_FRAME_BYTES)) is not None:
        start, position = frame
        request = content[start:position]
        api_key, version, _ = read_request_start(request)
        header = read_request_header(request, request_header_version(api_key, version))
        yield header.correlation_id, decode(REQUESTS[api_key], request, version, header.body_position), version
