"""A proxy in front of a PostgreSQL or a PgBouncer that cuts connections around a COMMIT, in a thread of its own.

It reads the type and the length of each message of PostgreSQL's protocol, and recognises the messages that commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import partial
from typing import Self, TypeAlias

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
LARGEST_MESSAGE_BYTES = 64 * 1024 * 1024
LARGEST_STARTUP_BYTES = 10_000
ENCRYPTION_REQUESTS = (80877103, 80877104)  # of TLS, of GSSAPI
NO_ENCRYPTION = b"N"
QUERY, PARSE, SYNC, COMPLETE = b"Q", b"P", b"S", b"C"

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Upstream: TypeAlias = Callable[[], Awaitable[Streams]]


class Place(Enum):
    """Where a connection is cut."""

    BEFORE = "before"
    """The COMMIT does not get to the database."""
    AFTER = "after"
    """The COMMIT gets there, and its answer does not come back."""
    HALF = "half"
    """Half of the answer comes back."""


class CutError(Exception):
    """This connection ends here."""


class CuttingProxy:
    """Forwards each of its ports on the loopback address to a database; a context manager.

    upstreams: functions that connect to the database, by port; called for each connection, so the database may move.
    ports: those that it listens on; the system chooses one in the place of 0.
    """

    def __init__(self, upstreams: Mapping[int, Upstream]) -> None:
        self.cuts_count = 0
        self.ports: list[int] = []
        self._upstreams = upstreams
        self._armed: deque[Place] = deque()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._started = threading.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="cutting proxy", daemon=True)

    def cut_next(self, place: Place) -> None:
        """Cut the connection of the next COMMIT of any client. Several calls are served in their order."""
        self._armed.append(place)

    def forget(self) -> None:
        """Cut no connection that has not come to its place yet."""
        self._armed.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S):
            raise RuntimeError(f"the proxy does not listen on the ports {', '.join(map(str, self._upstreams))}")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def armed(self) -> Place | None:
        """Take the place for a COMMIT that is under way."""
        return self._armed.popleft() if self._armed else None

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        servers = [
            await asyncio.start_server(partial(self._accept, upstream), HOST, port)
            for port, upstream in self._upstreams.items()
        ]
        self.ports = [server.sockets[0].getsockname()[1] for server in servers]
        self._started.set()
        await self._stopping.wait()
        for server in servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        # The end of the other side, and a cancellation at the end, are no failures of the proxy.
        with contextlib.suppress(OSError, EOFError, CutError, asyncio.CancelledError):
            await _Connection(self, (reader, writer)).run(upstream)
        self._connections.discard(task)


class _Connection:
    """One connection of a client, and the one to the database that belongs to it."""

    def __init__(self, proxy: CuttingProxy, client: Streams) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = client
        self._place: Place | None = None  # of the COMMIT that is under way
        self._is_committing = False

    async def run(self, upstream: Upstream) -> None:
        try:
            startup = await self._startup()
            self._from_database, self._to_database = await upstream()
            try:
                self._to_database.write(startup)
                await self._forward()
            finally:
                self._to_database.close()
        finally:
            self._to_client.close()

    async def _startup(self) -> bytes:
        """The first message of a client, which has no type. Encryption is refused."""
        while True:
            head = await self._from_client.readexactly(8)
            length, code = struct.unpack(">II", head)
            if length > LARGEST_STARTUP_BYTES or length < len(head):
                raise CutError
            if code not in ENCRYPTION_REQUESTS:
                return head + await self._from_client.readexactly(length - len(head))
            self._to_client.write(NO_ENCRYPTION)

    async def _forward(self) -> None:
        """Forward both directions, until one of them ends."""
        ways = [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._answers())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self) -> None:
        while True:
            kind, message = await _message(self._from_client)
            if commits(kind, message):
                self._place = self._proxy.armed()
                self._is_committing = True
                if self._place is Place.BEFORE:
                    self._cut()
            self._to_database.write(message)
            await self._to_database.drain()
            if self._is_committing and kind in (QUERY, SYNC):
                self._is_committing = False
                if self._place is Place.AFTER:
                    self._cut()

    async def _answers(self) -> None:
        while True:
            kind, message = await _message(self._from_database)
            if self._place is Place.HALF and kind == COMPLETE:
                self._to_client.write(message[: len(message) // 2])
                await self._to_client.drain()
                self._cut()
            self._to_client.write(message)
            await self._to_client.drain()

    def _cut(self) -> None:
        self._proxy.cuts_count += 1
        raise CutError


def commits(kind: bytes, message: bytes) -> bool:
    """Whether a message of a client, with its head of five bytes, commits: by itself, or once it is executed."""
    if kind not in (QUERY, PARSE):
        return False
    text = message[5:] if kind == QUERY else message[5:].partition(b"\0")[2]
    return text.lstrip()[:6].upper() == b"COMMIT"


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """A message's type, and all of it. Raises IncompleteReadError at the end of a connection, CutError for nonsense."""
    head = await reader.readexactly(5)
    (length,) = struct.unpack_from(">I", head, 1)
    if not 4 <= length <= LARGEST_MESSAGE_BYTES:
        raise CutError
    return head[:1], head + await reader.readexactly(length - 4)
