"""A proxy in front of a broker: it sees what Spark's queries ask, holds a request or a reply, and writes a history.

A request that is held has not reached the broker; for a reply that is held, the broker has done its work, and the
client does not know it. So a protocol can be stopped between any two of its steps, without a hook in the product.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fencepost.history.writer import Call, ClientHistory, HistoryWriter, SendCall
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.headers import (
    read_request_header,
    read_request_start,
    read_response_header,
    request_header_version,
    response_header_version,
)
from fencepost.protocol.messages import REQUESTS, RESPONSES
from fencepost.protocol.record_batch import iterate_batches, read_records
from fencepost.protocol.schema import decode
from tests.support.loopback_proxy import Conversation, LoopbackProxy

UNDERSTOOD = frozenset(
    {ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS}
)
HOLD_TIMEOUT_S = 200.0


class Passing(NamedTuple):
    """A request on its way to the broker, or its reply on the way back. `request` and `reply` are decoded messages."""

    api: ApiKey
    request: Any
    reply: Any = None

    @property
    def is_reply(self) -> bool:
        return self.reply is not None

    @property
    def transactional_id(self) -> str:
        """Of the transaction that it is about; empty for none."""
        return str(getattr(self.request, "transactional_id", None) or "")


@dataclass(eq=False)
class Hold:
    """What is held: everything that `matches`, until it is released or dropped."""

    matches: Callable[[Passing], bool]
    reached: threading.Event = field(default_factory=threading.Event)
    ended: bool = False
    is_dropped: bool = False
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def wait(self) -> None:
        """Wait until something is held. Raises AssertionError."""
        assert self.reached.wait(HOLD_TIMEOUT_S), "nothing came to the point where it should be held"


class Wire(LoopbackProxy):
    """The proxy, with a port for each node of the broker.

    failures: of the proxy itself; they end connections, and should not be.
    requests: how many have passed, by the client's id and the API.
    history: where sends and ends of transactions are recorded, for topics that `is_recorded` names.
    """

    def __init__(
        self, ports: range, upstream_port: int, history: HistoryWriter, is_recorded: Callable[[str], bool]
    ) -> None:
        super().__init__(ports[0], upstream_port, "wire", count=len(ports))
        self._recorder = _Recorder(history, is_recorded)
        self.failures: list[Exception] = []
        self.requests: Counter[tuple[str | None, ApiKey]] = Counter()
        self._holds: list[Hold] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + index}" for index in range(self.count))

    def hold(self, matches: Callable[[Passing], bool]) -> Hold:
        """From now on, hold what matches. `matches` sees everything that passes, in order, and may count."""
        hold = Hold(matches)
        self._holds.append(hold)
        return hold

    def keep(self, hold: Hold) -> int:
        """Hold what is held already, and nothing that comes later; returns how much that is."""
        self._call(lambda: self._holds.remove(hold))
        return len(hold.waiting)

    def release(self, hold: Hold) -> None:
        """Let pass what is held, and what comes later."""
        self._end(hold, is_dropped=False)

    def drop(self, hold: Hold) -> None:
        """Close the connections of what is held: it is never forwarded. Later ones pass."""
        self._end(hold, is_dropped=True)

    def _end(self, hold: Hold, *, is_dropped: bool) -> None:
        def end() -> None:
            hold.ended, hold.is_dropped = True, is_dropped
            if hold in self._holds:
                self._holds.remove(hold)
            for waiting in hold.waiting:
                if not waiting.done():
                    waiting.set_result(None)

        self._call(end)

    def _call(self, function: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self.loop.call_soon_threadsafe(run)
        assert done.wait(10)

    def conversation(self) -> Conversation:
        return _Passage(self.pass_on, self.requests)

    def failed(self, error: Exception) -> None:
        self.failures.append(error)

    async def pass_on(self, passing: Passing) -> None:
        if passing.is_reply:
            self._recorder.replied(passing)
        for hold in list(self._holds):
            if hold.matches(passing):
                waiting = self.loop.create_future()
                hold.waiting.append(waiting)
                hold.reached.set()
                await waiting
                if hold.is_dropped:
                    raise ConnectionAbortedError("held, and dropped")
        if not passing.is_reply:
            self._recorder.asked(passing)


class _Passage(Conversation):
    """A connection whose requests and replies are decoded, where they are among those that are understood."""

    def __init__(
        self, pass_on: Callable[[Passing], Awaitable[None]], requests: Counter[tuple[str | None, ApiKey]]
    ) -> None:
        self._pass_on = pass_on
        self._requests = requests
        self._pending: dict[int, tuple[int, int, Passing | None]] = {}  # by correlation id

    async def request(self, frame: bytes) -> None:
        api_key, version, correlation_id = read_request_start(frame)
        header = read_request_header(frame, request_header_version(api_key, version))
        self._requests[header.client_id, ApiKey(api_key)] += 1
        passing = None
        if api_key in UNDERSTOOD:
            request = decode(REQUESTS[api_key], frame, version, header.body_position)
            passing = Passing(ApiKey(api_key), request)
            await self._pass_on(passing)
        self._pending[correlation_id] = (api_key, version, passing)

    async def reply(self, frame: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame)
        api_key, version, asked = self._pending.pop(correlation_id)
        if asked is not None:
            _, position = read_response_header(frame, response_header_version(api_key, version))
            await self._pass_on(asked._replace(reply=decode(RESPONSES[api_key], frame, version, position)))


class _Recorder:
    """Writes the history of what transactional producers do, each under its transactional id."""

    def __init__(self, history: HistoryWriter, is_recorded: Callable[[str], bool]) -> None:
        self._history = history
        self._is_recorded = is_recorded
        self._clients: dict[str, ClientHistory] = {}
        self._open: set[str] = set()  # ids with a transaction that has records
        self._sends: dict[tuple[object, ...], list[SendCall]] = {}  # by batch; a client may send one again
        self._ends: dict[int, Call] = {}  # by the identity of the request

    def asked(self, passing: Passing) -> None:
        """A request leaves for the broker."""
        name = passing.transactional_id
        if passing.api is ApiKey.PRODUCE and name:
            for key, topic, partition, batch in _batches(passing.request):
                if key not in self._sends and self._is_recorded(topic):
                    client = self._client(name)
                    if name not in self._open:
                        self._open.add(name)
                        client.begin()
                    self._sends[key] = [
                        client.send(topic, (record.value or b"").decode(), partition) for record in read_records(batch)
                    ]
        elif passing.api is ApiKey.END_TXN and name in self._open:
            client = self._client(name)
            self._ends[id(passing.request)] = client.commit() if passing.request.committed else client.abort()

    def replied(self, passing: Passing) -> None:
        """The broker has answered."""
        name = passing.transactional_id
        if passing.api is ApiKey.INIT_PRODUCER_ID and name in self._clients and passing.reply.error_code == 0:
            # Another session: what the one before has left open is aborted.
            self._clients[name] = self._history.client(name, transactional_id=name)
            self._open.discard(name)
        elif passing.api is ApiKey.PRODUCE and name:
            self._produced(passing)
        elif passing.api is ApiKey.END_TXN and id(passing.request) in self._ends:
            call = self._ends.pop(id(passing.request))
            if passing.reply.error_code == 0:
                call.ok()
                self._open.discard(name)
            else:
                call.unknown(f"error {passing.reply.error_code}")

    def _produced(self, passing: Passing) -> None:
        answers = {
            partition.index: partition for topic in passing.reply.responses for partition in topic.partition_responses
        }
        for key, _, partition, _ in _batches(passing.request):
            calls = self._sends.get(key, [])
            answer = answers.get(partition)
            if answer is None or answer.error_code != 0:
                continue  # the client may send it again
            self._sends[key] = []
            for index, call in enumerate(calls):
                call.ok(offset=answer.base_offset + index)

    def _client(self, name: str) -> ClientHistory:
        if name not in self._clients:
            self._clients[name] = self._history.client(name, transactional_id=name)
        return self._clients[name]


def keys_of(request: Any, topic: str) -> list[str]:
    """The keys of the records that a Produce request has for a topic."""
    return [
        (record.key or b"").decode()
        for _, name, _, batch in _batches(request)
        if name == topic
        for record in read_records(batch)
    ]


def _batches(request: Any) -> list[tuple[tuple[object, ...], str, int, Any]]:
    """(identity, topic, partition, batch) of each batch in a Produce request."""
    found: list[tuple[tuple[object, ...], str, int, Any]] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            for batch in iterate_batches(data.records or b""):
                header = batch.header
                key = (topic.name, data.index, header.producer_id, header.producer_epoch, header.base_sequence)
                found.append((key, topic.name, data.index, batch))
    return found
