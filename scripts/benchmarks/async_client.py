"""A client for many connections at once: request objects of the protocol package over asyncio streams."""

from __future__ import annotations

import asyncio
import itertools
import struct
from types import TracebackType
from typing import Any, Self

from fencepost.protocol.framing import request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.schema import decode
from scripts.benchmarks.client import CLIENT_ID, VERSIONS


class AsyncClient:
    """One connection; a request is sent when the one before is answered. Raises OSError when the broker goes away."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_ids = itertools.count()

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Self:
        return cls(*await asyncio.open_connection(*address))

    async def call(self, request: Any) -> Any:
        api_key = request.api_key
        version = VERSIONS[type(request).__name__]
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        self._writer.write(request_frame(correlation_id, CLIENT_ID, request, version))
        try:
            (length,) = struct.unpack(">i", await self._reader.readexactly(4))
            content = await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("the broker closed the connection") from None
        header_bytes = 5 if response_header_version(api_key, version) >= 1 else 4
        return decode(RESPONSES[api_key], content, version, header_bytes)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
