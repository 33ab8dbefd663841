"""A proxy between clients and a broker on the loopback address, frame by frame, in a thread of its own.

A subclass says what becomes of each connection: what it sees, keeps or holds of the frames that pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from abc import ABC, abstractmethod
from functools import partial
from typing import Self

from tests.support.closed_loop import close_with_connections

LARGEST_BUFFER_BYTES = 2**20
START_TIMEOUT_S = 60


class Conversation(ABC):
    """One connection of a client through the proxy. Frames are without their length prefixes."""

    @abstractmethod
    async def request(self, frame: bytes) -> None:
        """Called for a request before it is forwarded. An exception ends the connection."""

    @abstractmethod
    async def reply(self, frame: bytes) -> None:
        """Called for a reply before it is forwarded. An exception ends the connection."""

    def ended(self) -> None:
        """Called when the connection has ended."""
        return


class LoopbackProxy(ABC):
    """Listens on `port` and forwards to `upstream_port`; a context manager that runs in a thread of its own.

    count: how many ports from each of the two on are connected so, one to one.
    """

    def __init__(self, port: int, upstream_port: int, name: str, *, count: int = 1) -> None:
        self.port = port
        self.upstream_port = upstream_port
        self.count = count
        self.loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def conversation(self) -> Conversation:
        """A client has connected, and the broker too."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """The proxy itself has failed on a connection, which was ended for that."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(START_TIMEOUT_S)
        return self

    def __exit__(self, *_exception: object) -> None:
        self.loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        self.loop.run_until_complete(self._serve())
        close_with_connections(self.loop)

    async def _serve(self) -> None:
        servers = [
            await asyncio.start_server(
                partial(self._forward, self.upstream_port + index),
                "127.0.0.1",
                self.port + index,
                limit=LARGEST_BUFFER_BYTES,
            )
            for index in range(self.count)
        ]
        self._started.set()
        await self._stopping.wait()
        for server in servers:
            server.close()
        open_connections = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in open_connections:
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)

    async def _forward(self, upstream_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(
                "127.0.0.1", upstream_port, limit=LARGEST_BUFFER_BYTES
            )
        except OSError:  # the broker is down, and so are we
            writer.close()
            return
        conversation = self.conversation()

        async def copy_requests() -> None:
            while True:
                frame = await _read_frame(reader)
                await conversation.request(frame)
                await _write_frame(upstream_writer, frame)

        async def copy_replies() -> None:
            while True:
                frame = await _read_frame(upstream_reader)
                await conversation.reply(frame)
                await _write_frame(writer, frame)

        directions = [asyncio.create_task(copy_requests()), asyncio.create_task(copy_replies())]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # the proxy is closing; a handler that ends cancelled is reported by asyncio as a failure
        finally:
            for task in directions:
                task.cancel()
            outcomes = await asyncio.gather(*directions, return_exceptions=True)
            conversation.ended()
            for end in (writer, upstream_writer):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, asyncio.IncompleteReadError | OSError):
                self.failed(outcome)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


async def _write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(struct.pack(">i", len(frame)) + frame)
    await writer.drain()
