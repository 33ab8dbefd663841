"""A proxy that copies bytes between clients and a broker and keeps what passed, frame by frame.

It rewrites nothing: the broker is started with the proxy's port as its advertised listener, so every connection leads
through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its reply, without their length prefixes.

    source:   the client that sent it, for example "confluent-kafka 2.16.1".
    response: None where the broker sends none (Produce with acks=0) or the connection ended before it came.
    """

    source: str
    api_key: int
    version: int
    request: bytes
    response: bytes | None


class RecordingProxy:
    """Listens on `port` and forwards to `upstream_port`, both on the loopback address; a context manager that runs in
    its own thread.

    `source` names the client that is being recorded; a connection keeps the name it was opened under.
    """

    def __init__(self, port: int, upstream_port: int) -> None:
        self.port = port
        self.source = ""
        self.exchanges: list[Exchange] = []
        self._upstream_port = upstream_port
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="recording-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        self._started.set()
        await self._stopping.wait()
        server.close()
        open_connections = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in open_connections:
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = self.source
        pending: dict[int, bytes] = {}  # correlation id -> request frame
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)

        async def copy_requests() -> None:
            while True:
                frame = await _read_frame(reader)
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                pending[correlation_id] = frame
                upstream_writer.write(struct.pack(">i", len(frame)) + frame)
                await upstream_writer.drain()

        async def copy_responses() -> None:
            while True:
                frame = await _read_frame(upstream_reader)
                (correlation_id,) = struct.unpack_from(">i", frame)
                self._keep(source, pending.pop(correlation_id), frame)
                writer.write(struct.pack(">i", len(frame)) + frame)
                await writer.drain()

        directions = [asyncio.create_task(copy_requests()), asyncio.create_task(copy_responses())]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # the proxy is closing; a handler that ends cancelled is reported by asyncio as a failure
        finally:
            for task in directions:
                task.cancel()
            outcomes = await asyncio.gather(*directions, return_exceptions=True)
            for unanswered in pending.values():
                self._keep(source, unanswered, None)
            for end in (writer, upstream_writer):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, asyncio.IncompleteReadError | OSError):
                raise outcome

    def _keep(self, source: str, request: bytes, response: bytes | None) -> None:
        api_key, version = struct.unpack_from(">hh", request)
        self.exchanges.append(Exchange(source, api_key, version, request, response))


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)
